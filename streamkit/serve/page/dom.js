// Creates and updates elements. Text is always set as text, so that names and messages never become markup.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function say(words) {
  text($("said"), words);
}

const whole = new Intl.NumberFormat();
export const number = (n) => whole.format(n);

export function ago(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

// Sets up a dialog: its cancel buttons and its form. `submit` receives the form; an error that it throws is shown.
export function dialog(id, submit) {
  const box = $(id);
  const form = box.querySelector("form");
  const error = box.querySelector(".error");
  for (const button of box.querySelectorAll(".cancel")) button.addEventListener("click", () => box.close());
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector('[type="submit"]');
    button.disabled = true;
    text(error, "");
    try {
      await submit(form);
      box.close();
    } catch (trouble) {
      text(error, trouble.message);
    } finally {
      button.disabled = false;
    }
  });
  return {
    box,
    open() {
      if (error) text(error, "");
      box.showModal();
    },
  };
}
