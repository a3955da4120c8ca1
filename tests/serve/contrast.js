// For every text on the page: its contrast with the background it stands on, as WCAG 2 defines it.
() => {
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    if (!node.textContent.trim() || !element.checkVisibility() || element.closest("svg, script, noscript, :disabled, .unseen")) continue;
    const [a, b] = [light(parse(style.color)), light(ground(element))].sort((x, y) => y - x);
    found.push({ text: node.textContent.trim().slice(0, 40), ratio: (a + 0.05) / (b + 0.05) });
  }
  return found;
}
