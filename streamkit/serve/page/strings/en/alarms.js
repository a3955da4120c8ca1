// The alarm centre.

export default {
  "alarms.title": "Alarms",
  "alarms.wrong": "Wrong now",
  "alarms.fine": "Nothing is wrong.",
  "alarms.nothingElse": "Nothing else is wrong.",
  "alarms.raised": "Raised alarms",
  "alarms.none": "No alarm is raised.",
  "alarms.history": "History",
  "alarms.never": "No alarm was raised since the start.",
  "alarms.rules": "Rules",
  "alarms.noRules": "This pipeline has no alarms: add some under alarms: in its YAML.",
  "alarms.count": "raised since the start: {n}",
  "alarms.since": "for {time}",
  "alarms.acknowledged": "acknowledged, raised for {time}",
  "alarms.acknowledge": "Acknowledge",
  "alarms.acknowledgeOf": "Acknowledge {alarm} of {source}",
  "alarms.noted": "{alarm} is acknowledged.",
  "alarms.wasRaised": "{alarm} raised",
  "alarms.wasCleared": "{alarm} cleared",
};
