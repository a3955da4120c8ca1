// Sums of the Laplacian of parts of frames, and of its squares, all in one launch; see cut.py, whose equivalent on the
// host gives equal numbers.
//
// grid  (16, parts), block 256: the blocks of a part share its rows, the threads of a block a row's pixels.
// sums  (parts, 2) 64-bit integers, 0 before: the sum and the sum of squares. The border of a part has no Laplacian.

#include "cut.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

extern "C" __global__ void __launch_bounds__(THREADS) sharpness(const Part* parts, unsigned long long* sums) {
    const Part p = parts[blockIdx.y];
    long long sum = 0, squares = 0;
    for (int y = p.top + 1 + blockIdx.x; y < p.bottom - 1; y += gridDim.x) {
        const unsigned char* row = p.source + (size_t)y * p.pitch;
        for (int x = p.left + 1 + threadIdx.x; x < p.right - 1; x += THREADS) {
            const int edge = (int)__ldg(row + x - p.pitch) + (int)__ldg(row + x + p.pitch) + (int)__ldg(row + x - 1) +
                             (int)__ldg(row + x + 1) - 4 * (int)__ldg(row + x);
            sum += edge;
            squares += edge * edge;
        }
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
        squares += __shfl_down_sync(0xffffffffu, squares, offset);
    }
    __shared__ long long of_warps[WARPS][2];
    if (threadIdx.x % 32 == 0) {
        of_warps[threadIdx.x / 32][0] = sum;
        of_warps[threadIdx.x / 32][1] = squares;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        long long total = 0;
        for (int warp = 0; warp < WARPS; warp++) total += of_warps[warp][threadIdx.x];
        atomicAdd(sums + 2 * blockIdx.y + threadIdx.x, (unsigned long long)total);  // wraps around as signed ones do
    }
}
