// Loads the style sheets of views.

/** @type {Map<string, Promise<void>>} */
const sheets = new Map();

/**
 * Loads a view's style sheet, once. The promise resolves when it applies; after a failure, the next call tries again.
 * @param {string} name of the file in views/, without its ending
 * @returns {Promise<void>}
 */
export function stylesheet(name) {
  let sheet = sheets.get(name);
  if (!sheet) {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = `/page/views/${name}.css`;
    sheets.set(name, sheet = new Promise((resolve, reject) => {
      link.onload = () => resolve();
      link.onerror = () => {
        sheets.delete(name);
        link.remove();
        reject(new Error(`${link.href} could not be loaded`));
      };
    }));
    document.head.append(link);
  }
  return sheet;
}
