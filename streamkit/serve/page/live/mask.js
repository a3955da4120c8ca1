// Masks in COCO's compressed run-length encoding as images.

const LARGEST = 480; // pixels along the longer side: a mask is drawn translucent, and each is decoded for each frame

/**
 * The lengths of the runs, of 0 and 1 in turn, column by column.
 * @param {string} counts
 */
export function runs(counts) {
  const found = [];
  for (let at = 0; at < counts.length;) {
    let value = 0, shift = 0, more = true;
    while (more && at < counts.length) {
      const code = counts.charCodeAt(at) - 48;
      at += 1;
      value |= (code & 31) << shift;
      more = (code & 32) !== 0;
      shift += 5;
      if (!more && code & 16) value |= -1 << shift;
    }
    if (found.length > 2) value += found[found.length - 2];
    found.push(value);
  }
  return found;
}

/**
 * A mask of the whole frame as an image with this color where the object is.
 * @param {{ size: number[], counts: string }} mask
 * @param {string} color
 * @returns {HTMLCanvasElement | null} null for an empty mask
 */
export function maskImage({ size: [height, width], counts }, color) {
  const step = Math.max(1, Math.ceil(Math.max(height, width) / LARGEST));
  const image = document.createElement("canvas");
  image.width = Math.ceil(width / step);
  image.height = Math.ceil(height / step);
  const context = image.getContext("2d");
  if (!context || !image.width || !image.height) return null;
  const data = context.createImageData(image.width, image.height);
  let at = 0, one = false;
  for (const length of runs(counts)) {
    if (one) fill(data, at, at + length, height, step);
    at += length;
    one = !one;
  }
  context.putImageData(data, 0, 0);
  context.globalCompositeOperation = "source-in";
  context.fillStyle = color;
  context.fillRect(0, 0, image.width, image.height);
  return image;
}

/**
 * @param {ImageData} image
 * @param {number} begin
 * @param {number} end
 * @param {number} height
 * @param {number} step
 */
function fill(image, begin, end, height, step) {
  for (let at = begin; at < end;) {
    const column = Math.floor(at / height), stop = Math.min(end, (column + 1) * height);
    if (column % step === 0) {
      for (let row = Math.ceil((at - column * height) / step) * step; row < stop - column * height; row += step) {
        image.data[4 * ((row / step) * image.width + column / step) + 3] = 255;
      }
    }
    at = stop;
  }
}
