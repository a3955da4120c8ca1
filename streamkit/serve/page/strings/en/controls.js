// The controls of settings.

export default {
  "control.notSet": "not set",
  "control.set": "Set",
  "control.each": "One value for each class",
  "control.seconds": "seconds",
  "control.bytes": "bytes",
  "control.pixels": "pixels",
  "control.between": "{low} to {high}",
  "control.atLeast": "at least {low}",
  "control.atMost": "at most {high}",
  "control.key": "{label}: name",
  "control.value": "{label}: value",
  "control.addRow": "Add a row",
  "control.removeRow": "{label}: remove this row",
  "control.emptyRow": "{label} has an empty row: fill it in, or remove it.",
  "control.noNumber": "Type a number.",
  "control.notJson": "{label} is not JSON.",
};
