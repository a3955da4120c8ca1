// The best class of each pixel of a frame; see class_maps.py, whose NumPy equivalent gives equal classes.
//
// pixel_classes: a thread for each pixel, down the columns of its frame; frames in y. A pixel between four places of one
// best class has it; for the others the scores of each class are sampled bilinearly.
//
// Defines: HALF=1 reads f16 scores (default f32).

#ifdef HALF
#include <cuda_fp16.h>
typedef __half value_t;
#else
typedef float value_t;
#endif

typedef unsigned char byte;

struct Place {
    int lower, upper;
    float weight;  // of the upper one
};

__device__ __forceinline__ Place place(int pixel, double scale, double offset, int places) {
    const double at = __dsub_rn(__dadd_rn(__dmul_rn(pixel + 0.5, scale), offset), 0.5);
    const double inside = fmin(fmax(at, 0.0), (double)(places - 1));
    const int lower = (int)floor(inside);
    return Place{lower, min(lower + 1, places - 1), (float)(inside - lower)};
}

__device__ __forceinline__ float mix(float low, float high, float weight) {
    return __fadd_rn(__fmul_rn(low, __fsub_rn(1.0f, weight)), __fmul_rn(high, weight));
}

extern "C" __global__ void pixel_classes(
    const value_t* all_scores, long long per_frame, long long per_class, long long per_row, long long per_column,
    const byte* all_best,                // (frames, high, wide)
    int count, int wide, int high,
    const double* all_to_map,            // (frames, 4) scale_x, scale_y, offset_x, offset_y
    const int* sizes,                    // (frames, 2) width and height
    long long room,
    byte* classes) {                     // (frames, room)
    const int frame = blockIdx.y;
    const long long pixel = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const int width = sizes[frame * 2], height = sizes[frame * 2 + 1];
    if (pixel >= (long long)width * height) return;
    const double* to_map = all_to_map + frame * 4;
    const Place x = place((int)(pixel / height), to_map[0], to_map[2], wide);
    const Place y = place((int)(pixel % height), to_map[1], to_map[3], high);

    const byte* best = all_best + (size_t)frame * high * wide;
    const byte* upper_row = best + (size_t)y.lower * wide;
    const byte* lower_row = best + (size_t)y.upper * wide;
    byte winner = upper_row[x.lower];
    if (upper_row[x.upper] != winner || lower_row[x.lower] != winner || lower_row[x.upper] != winner) {
        const value_t* scores = all_scores + frame * per_frame;
        const long long corners[4] = {
            y.lower * per_row + x.lower * per_column, y.lower * per_row + x.upper * per_column,
            y.upper * per_row + x.lower * per_column, y.upper * per_row + x.upper * per_column};
        float highest = __uint_as_float(0xff800000u);  // -infinity
        winner = 0;
        for (int c = 0; c < count; ++c, scores += per_class) {
            const float low = mix((float)scores[corners[0]], (float)scores[corners[1]], x.weight);
            const float high_score = mix((float)scores[corners[2]], (float)scores[corners[3]], x.weight);
            const float score = mix(low, high_score, y.weight);
            if (score > highest) {
                highest = score;
                winner = (byte)c;
            }
        }
    }
    classes[frame * room + pixel] = winner;
}
