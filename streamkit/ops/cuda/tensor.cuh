// How a kernel writes a pixel of a network's input. Defines: OUT = float | __half | u8, NHWC = 0 | 1.

#pragma once

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

__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void store(__half* to, float value) { *to = __float2half_rn(value); }
__device__ __forceinline__ void store(u8* to, float value) {
    *to = (u8)within(rintf(value), 0.0f, 255.0f);
}

// The values of a pixel in the network's channel order, from its RGB in 0..255.
__device__ __forceinline__ void normalize(const Spec& spec, const float3& rgb, float value[3]) {
    const bool bgr = spec.bgr != 0;
    value[0] = (bgr ? rgb.z : rgb.x) * spec.factor[0] + spec.summand[0];
    value[1] = rgb.y * spec.factor[1] + spec.summand[1];
    value[2] = (bgr ? rgb.x : rgb.z) * spec.factor[2] + spec.summand[2];
}

// Write a pixel of one row of the batch, `tensor`.
__device__ __forceinline__ void write(const Spec& spec, int x, int y, const float value[3], OUT* tensor) {
    const size_t pixel = (size_t)y * spec.width + x;
#if NHWC
    OUT* to = tensor + pixel * 3;
    const size_t next = 1;
#else
    OUT* to = tensor + pixel;
    const size_t next = (size_t)spec.width * spec.height;
#endif
    store(to, value[0]);
    store(to + next, value[1]);
    store(to + 2 * next, value[2]);
}
