// Hide regions of a batch's frames, NV12, in place, in two launches; see hide.py, whose NumPy equivalent gives equal bytes.
//
// means: one block of 128 threads for each cell of all regions; it reads the frame and writes the cell's mean color.
// paint: tiles of 64x16 pixels in x and y, frames in z, a thread for each 2x2 block of pixels, which has one chroma
// sample. It reads the means alone, and of the regions over the block the last one shows; so no pixel has two writers.

typedef unsigned char byte;

struct Frame {
    const byte* from;
    byte* to;  // the same
    int width, height;
    int first, last;  // its regions
};

struct Region {
    int frame, x1, y1, x2, y2;
    int cell, columns, rows;
    int first;   // its first cell among all
    int mask;    // its first cell's mask, or -1
    int smooth;  // 1: blurred, 0: pixelated
};

enum { THREADS = 128, WARPS = THREADS / 32 };

extern "C" __global__ void __launch_bounds__(THREADS)
means(const Frame* frames, const Region* regions, int count, int cells, uchar4* out) {
    const int cell = blockIdx.x;
    if (cell >= cells) return;
    int low = 0, high = count - 1;  // the last region that begins at or before this cell
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (regions[middle].first <= cell) low = middle;
        else high = middle - 1;
    }
    const Region r = regions[low];
    const Frame f = frames[r.frame];
    const int left = r.x1 + (cell - r.first) % r.columns * r.cell, top = r.y1 + (cell - r.first) / r.columns * r.cell;
    const int wide = (min(left + r.cell, r.x2) - left) / 2, tall = (min(top + r.cell, r.y2) - top) / 2;
    const int blocks = wide * tall;
    unsigned sums[3] = {0, 0, 0};
    for (int i = threadIdx.x; i < blocks; i += THREADS) {
        const int x = left + 2 * (i % wide), y = top + 2 * (i / wide);
        const byte* luma = f.from + (size_t)y * f.width + x;
        const uchar2 upper = *(const uchar2*)luma, lower = *(const uchar2*)(luma + f.width);
        const uchar2 chroma = *(const uchar2*)(f.from + (size_t)(f.height + y / 2) * f.width + x);
        sums[0] += upper.x + upper.y + lower.x + lower.y;
        sums[1] += chroma.x;
        sums[2] += chroma.y;
    }
    __shared__ unsigned parts[WARPS][3];
#pragma unroll
    for (int c = 0; c < 3; c++) {
        for (int step = 16; step > 0; step /= 2) sums[c] += __shfl_down_sync(0xffffffffu, sums[c], step);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][c] = sums[c];
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < WARPS; w++)
        for (int c = 0; c < 3; c++) sums[c] += parts[w][c];
    const unsigned n = (unsigned)blocks;
    out[cell] = make_uchar4((sums[0] + 2 * n) / (4 * n), (sums[1] + n / 2) / n, (sums[2] + n / 2) / n, 0);
}

__device__ __forceinline__ int channel(uchar4 cell, int c) { return c == 0 ? cell.x : c == 1 ? cell.y : cell.z; }

// One sample of a blurred region: x and y in samples from its corner, `side` samples a cell.
__device__ __forceinline__ byte blurred(const uchar4* cells, const Region& r, int x, int y, int side, int c) {
    const int u = max((2 * x + 1) * 128 / side - 128, 0), v = max((2 * y + 1) * 128 / side - 128, 0);
    const int i = min(u >> 8, r.columns - 1), j = min(v >> 8, r.rows - 1);
    const int i2 = min(i + 1, r.columns - 1), j2 = min(j + 1, r.rows - 1);
    const int share = u & 255, down = v & 255;
    const uchar4* here = cells + r.first;
    const int left = channel(here[j * r.columns + i], c) * (256 - down) + channel(here[j2 * r.columns + i], c) * down;
    const int right = channel(here[j * r.columns + i2], c) * (256 - down) + channel(here[j2 * r.columns + i2], c) * down;
    return (byte)((left * (256 - share) + right * share + (1 << 15)) >> 16);
}

extern "C" __global__ void paint(const Frame* frames, const Region* regions, const byte* masks, const uchar4* cells) {
    const Frame f = frames[blockIdx.z];
    const int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x), y = 2 * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= f.width || y >= f.height) return;
    for (int k = f.last - 1; k >= f.first; k--) {
        const Region r = regions[k];
        if (x < r.x1 || x >= r.x2 || y < r.y1 || y >= r.y2) continue;
        const int dx = x - r.x1, dy = y - r.y1, cell = dy / r.cell * r.columns + dx / r.cell;
        if (r.mask >= 0 && !masks[r.mask + cell]) continue;
        uchar2 upper, lower, chroma;
        if (r.smooth) {
            upper = make_uchar2(blurred(cells, r, dx, dy, r.cell, 0), blurred(cells, r, dx + 1, dy, r.cell, 0));
            lower = make_uchar2(blurred(cells, r, dx, dy + 1, r.cell, 0), blurred(cells, r, dx + 1, dy + 1, r.cell, 0));
            chroma = make_uchar2(blurred(cells, r, dx / 2, dy / 2, r.cell / 2, 1),
                                 blurred(cells, r, dx / 2, dy / 2, r.cell / 2, 2));
        } else {
            const uchar4 color = cells[r.first + cell];
            upper = lower = make_uchar2(color.x, color.x);
            chroma = make_uchar2(color.y, color.z);
        }
        byte* luma = f.to + (size_t)y * f.width + x;
        *(uchar2*)luma = upper;
        *(uchar2*)(luma + f.width) = lower;
        *(uchar2*)(f.to + (size_t)(f.height + y / 2) * f.width + x) = chroma;
        return;
    }
}
