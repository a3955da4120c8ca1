// Cut parts out of NV12 frames, made smaller by whole steps, all in one launch; see cut.py, whose NumPy equivalent gives
// equal bytes.
//
// grid  (ceil(widest / 64), ceil(highest / 16), parts), block (32, 8): a thread writes 2x2 pixels of one cut surface
//       and their chroma.

#include "cut.cuh"

typedef unsigned char byte;

// The rounded mean of step x step luma samples from x, y on, in pixels of the cut surface.
__device__ __forceinline__ byte luma(const Part& p, int x, int y) {
    unsigned sum = 0;
    for (int j = 0; j < p.step; j++) {
        const byte* row = p.source + (size_t)min(p.top + y * p.step + j, p.bottom - 1) * p.pitch;
        for (int i = 0; i < p.step; i++) sum += __ldg(row + min(p.left + x * p.step + i, p.right - 1));
    }
    const unsigned n = p.step * p.step;
    return (byte)((sum + n / 2) / n);
}

extern "C" __global__ void cut(const Part* parts) {
    const Part p = parts[blockIdx.z];
    const int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x), y = 2 * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= p.width || y >= p.height) return;
    byte* to = p.to + (size_t)y * p.width + x;
    *(uchar2*)to = make_uchar2(luma(p, x, y), luma(p, x + 1, y));
    *(uchar2*)(to + p.width) = make_uchar2(luma(p, x, y + 1), luma(p, x + 1, y + 1));

    unsigned blue = 0, red = 0;
    for (int j = 0; j < p.step; j++) {
        const int row = min(p.top / 2 + y / 2 * p.step + j, (p.bottom - 1) / 2);
        const uchar2* pairs = (const uchar2*)(p.source + (size_t)(p.rows + row) * p.pitch);
        for (int i = 0; i < p.step; i++) {
            const uchar2 pair = __ldg(pairs + min(p.left / 2 + x / 2 * p.step + i, (p.right - 1) / 2));
            blue += pair.x;
            red += pair.y;
        }
    }
    const unsigned n = p.step * p.step;
    *(uchar2*)(p.to + (size_t)(p.height + y / 2) * p.width + x) =
        make_uchar2((byte)((blue + n / 2) / n), (byte)((red + n / 2) / n));
}
