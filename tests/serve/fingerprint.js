// The computed style of each kind of element of the view, by its path of tags, classes and states below the view.
() => {
  const root = [...document.querySelectorAll("main")].find((main) => !main.hidden), styles = {};
  const names = ["display", "position", "marginTop", "paddingLeft", "fontSize", "fontWeight", "color", "textAlign", "whiteSpace",
    "borderTopWidth", "flexDirection", "gap", "minHeight", "maxWidth", "gridColumnStart"];
  const states = (element) => ["aria-pressed", "aria-current", "disabled", "hidden", "type"].filter((name) => element.hasAttribute(name))
    .map((name) => `[${name}=${element.getAttribute(name)}]`);
  const path = (element) => (element === root ? "main"
    : `${path(element.parentElement)} > ${[element.localName, ...[...element.classList].sort()].join(".")}${states(element).join("")}`);
  for (const element of root.querySelectorAll("*:not(svg *)")) {
    const style = getComputedStyle(element);
    styles[path(element)] = names.map((name) => `${name}: ${style[name]}`).join("; ");
  }
  return styles;
}
