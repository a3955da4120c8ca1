// The color of each camera: the same in every chart, and as long as the camera is there.

const STORE = "streamkit.colors";
const HUES = [258, 60, 150, 325, 28, 200, 295, 115, 85, 350, 175, 230]; // neighbors differ most; degrees of OKLCH
const SHADES = 2;

/** @type {Map<string, number>} */
const slots = stored();

/** @returns {Map<string, number>} */
function stored() {
  try {
    const entries = Object.entries(JSON.parse(localStorage.getItem(STORE) ?? "{}"));
    return new Map(entries.flatMap(([id, slot]) => (Number.isInteger(slot) ? [[id, slot]] : [])));
  } catch {
    return new Map();
  }
}

/**
 * Gives each new camera the first color that no other one has.
 * @param {string[]} ids of all cameras
 */
export function assignColors(ids) {
  const fresh = ids.filter((id) => !slots.has(id));
  if (!fresh.length) return;
  for (const id of slots.keys()) if (!ids.includes(id)) slots.delete(id);
  const taken = new Set(slots.values());
  for (const id of fresh) {
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    taken.add(slot);
    slots.set(id, slot);
  }
  try {
    localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(slots)));
  } catch { /* no storage: the colors last as long as the page */ }
}

/**
 * The color of a slot, as CSS. The lightness fits the color scheme: see style.css.
 * @param {number} slot
 */
export function colorOfSlot(slot) {
  const round = Math.floor(slot / (HUES.length * SHADES)), shade = Math.floor(slot / HUES.length) % SHADES;
  return `oklch(var(--line-${shade}) 0.15 ${(HUES[slot % HUES.length] + 11 * round) % 360})`;
}

/**
 * The color of a camera.
 * @param {string} id
 */
export function colorOf(id) {
  if (!slots.has(id)) assignColors([...slots.keys(), id]);
  return colorOfSlot(slots.get(id) ?? 0);
}
