// Loads the style of a view, once.

/** @param {string} name of the file in views/ */
export function stylesheet(name) {
  const href = `/page/views/${name}.css`;
  if (document.querySelector(`link[href="${href}"]`)) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  document.head.append(link);
}
