// Surfaces to a network's input: resize, place, convert, normalise, for a whole batch in one launch.
//
// grid  (ceil(width / 32), ceil(height / 8), batch), block (32, 8): a thread makes one network pixel of one frame, three
//       channels. A block's writes are runs of 32 pixels in each plane.
// spec: one record, and behind it a Frame for each of the batch; one with new_width 0 is padding only.
// tensor: (batch, 3, height, width), or (batch, height, width, 3) where NHWC is 1, of OUT.
//
// Defines: OUT = float | __half | u8, NHWC = 0 | 1.

#include <cuda_fp16.h>
#include "color.cuh"

using u8 = unsigned char;

// The network's input; ops/preprocess_cuda.py's SPEC.
struct Spec {
    float factor[3], summand[3];  // value = pixel * factor + summand, per channel in the network's order
    float pad[3];                 // the value where there is no frame
    int width, height;            // of the input
    int bgr;                      // 1 where the first channel is blue
};

// One frame's part; its size, as Spec's, is a multiple of 8; ops/preprocess_cuda.py's FRAME.
struct Frame {
    Image image;
    int left, top, new_width, new_height;  // where the resized frame lies, in network pixels
    float step_x, step_y;                  // source pixels from one network pixel to the next
};

__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void store(__half* to, float value) { *to = __float2half_rn(value); }
__device__ __forceinline__ void store(u8* to, float value) {
    *to = (u8)within(rintf(value), 0.0f, 255.0f);
}

extern "C" __global__ void preprocess(const Spec* spec, OUT* tensor) {
    const int width = spec->width, height = spec->height;
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;

    const Frame& frame = reinterpret_cast<const Frame*>(spec + 1)[blockIdx.z];
    const int in_x = x - frame.left, in_y = y - frame.top;
    float value[3] = {spec->pad[0], spec->pad[1], spec->pad[2]};
    if (in_x >= 0 && in_x < frame.new_width && in_y >= 0 && in_y < frame.new_height) {
        const float3 rgb = rgb_at(frame.image, ((float)in_x + 0.5f) * frame.step_x - 0.5f,
                                  ((float)in_y + 0.5f) * frame.step_y - 0.5f);
        const bool bgr = spec->bgr != 0;
        value[0] = (bgr ? rgb.z : rgb.x) * spec->factor[0] + spec->summand[0];
        value[1] = rgb.y * spec->factor[1] + spec->summand[1];
        value[2] = (bgr ? rgb.x : rgb.z) * spec->factor[2] + spec->summand[2];
    }

    const size_t area = (size_t)width * height, pixel = (size_t)y * width + x;
#if NHWC
    OUT* to = tensor + (blockIdx.z * area + pixel) * 3;
    const size_t next = 1;
#else
    OUT* to = tensor + blockIdx.z * area * 3 + pixel;
    const size_t next = area;
#endif
    store(to, value[0]);
    store(to + next, value[1]);
    store(to + 2 * next, value[2]);
}
