// Read a detector's raw outputs: one thread an anchor, blocks of anchors in x, the batch's frames in y.
//
// Every anchor that reaches its class's score threshold leaves its box (network pixels), class and points at its own
// place, [frame][anchor], and a sort key in its frame's list. The list fills in any order, as atomics have it; the keys
// hold (score falling, anchor rising), so that sorting them (nms.cu) gives one order whatever happened here.
//
// Defines: HALF=1 reads f16 values (default f32); LABELS=32 or 64 reads integer labels (default: as the values).
// Arithmetic is float32, never contracted, in the order of the NumPy equivalent (candidates.py); exponentials go through
// double, so that both sides round to the same float32.

#include "candidates.cuh"

#ifdef HALF
#include <cuda_fp16.h>
typedef __half value_t;
#else
typedef float value_t;
#endif

#if !defined(LABELS)
typedef value_t label_t;
#elif LABELS == 64
typedef long long label_t;
#else
typedef int label_t;
#endif

enum { XYXY = 0, YXYX = 1, CXCYWH = 2, GRID = 3, ROTATED = 4 };     // how four values tell a box

struct Box {
    float x1, y1, x2, y2;
};

// Where candidates go.
struct Sink {
    const float* min_score;  // (classes,), +inf for a class that is not wanted
    int classes;
    float floor;       // the lowest of min_score
    int anchors;       // rows of boxes, class_ids and points a frame
    int capacity;      // keys a frame
    key_t64* keys;     // (frames, capacity)
    int* tallies;      // (frames, TALLIES)
    float* boxes;      // (frames, anchors, 4) network pixels
    int* class_ids;    // (frames, anchors)
};

__device__ __forceinline__ bool is_number(float v) { return fabsf(v) <= 3.402823466e38f; }

__device__ __forceinline__ float exp_like_host(float v) { return (float)exp((double)v); }

// Whether a score reaches the lowest threshold. One that is no number is counted; the host infers the others.
__device__ __forceinline__ bool reaches(const Sink& sink, int frame, float score) {
    if (score >= sink.floor) return true;
    if (score != score) atomicAdd(&sink.tallies[frame * TALLIES + NOT_FINITE], 1);
    return false;
}

// The thresholds that need the class. `score` has reached the floor.
__device__ __forceinline__ bool wanted(const Sink& sink, int frame, float score, int class_id) {
    const bool known = class_id >= 0 && class_id < sink.classes;
    const float never = __int_as_float(0x7f800000), least = known ? sink.min_score[class_id] : never;
    if (least == never) {
        atomicAdd(&sink.tallies[frame * TALLIES + LABEL], 1);
        return false;
    }
    return score >= least;
}

__device__ __forceinline__ bool add(const Sink& sink, int frame, int anchor, float score, int class_id, Box box) {
    int* tally = sink.tallies + frame * TALLIES;
    if (!(is_number(score) && is_number(box.x1) && is_number(box.y1) && is_number(box.x2) && is_number(box.y2))) {
        atomicAdd(&tally[NOT_FINITE], 1);
        return false;
    }
    const size_t place = (size_t)frame * sink.anchors + anchor;
    float* out = sink.boxes + 4 * place;
    out[0] = box.x1, out[1] = box.y1, out[2] = box.x2, out[3] = box.y2;
    sink.class_ids[place] = class_id;
    sink.keys[(size_t)frame * sink.capacity + atomicAdd(&tally[FOUND], 1)] = sort_key(score, anchor);
    return true;
}

// Further values of an anchor go with its object.
__device__ __forceinline__ void keep(const Sink& sink, int frame, int anchor, const value_t* points, long long step,
                                     int columns, float* out_points) {
    float* out = out_points + columns * ((size_t)frame * sink.anchors + anchor);
    for (int c = 0; c < columns; ++c) out[c] = (float)points[c * step];
}

__device__ __forceinline__ Box around(float cx, float cy, float w, float h) {
    const float rx = __fmul_rn(w, 0.5f), ry = __fmul_rn(h, 0.5f);
    return Box{__fsub_rn(cx, rx), __fsub_rn(cy, ry), __fadd_rn(cx, rx), __fadd_rn(cy, ry)};
}

// An anchor of a feature pyramid with strides 8, 16 and 32, rows of cells within a level.
struct Cell {
    int level, within;  // `within`: its number in the level
    float x, y, stride;
};

__device__ __forceinline__ Cell cell(int anchor, int width, int height) {
    int level = 0, columns = width / 8, cells = columns * (height / 8);
    while (level < 2 && anchor >= cells) {
        anchor -= cells;
        ++level;
        columns = width / (8 << level);
        cells = columns * (height / (8 << level));
    }
    return Cell{level, anchor, (float)(anchor % columns), (float)(anchor / columns), (float)(8 << level)};
}

__device__ __forceinline__ Box grid_box(Cell c, float a, float b, float w, float h) {
    return around(__fmul_rn(__fadd_rn(a, c.x), c.stride), __fmul_rn(__fadd_rn(b, c.y), c.stride),
                  __fmul_rn(exp_like_host(w), c.stride), __fmul_rn(exp_like_host(h), c.stride));
}

__device__ __forceinline__ Box decode(const value_t* v, long long step, int coding, float ux, float uy, int anchor,
                                      int width, int height) {
    const float a = (float)v[0], b = (float)v[step], c = (float)v[2 * step], d = (float)v[3 * step];
    if (coding == GRID) return grid_box(cell(anchor, width, height), a, b, c, d);
    if (coding == CXCYWH) return around(__fmul_rn(a, ux), __fmul_rn(b, uy), __fmul_rn(c, ux), __fmul_rn(d, uy));
    if (coding == YXYX) return Box{__fmul_rn(b, ux), __fmul_rn(a, uy), __fmul_rn(d, ux), __fmul_rn(c, uy)};
    return Box{__fmul_rn(a, ux), __fmul_rn(b, uy), __fmul_rn(c, ux), __fmul_rn(d, uy)};
}

// A rotated box: center, size and angle; its corners (rotated.py), and their hull. A NaN makes all corners NaN in x or
// in y, so the hull is no number either, although fminf passes over NaN.
__device__ __forceinline__ Box rotated(const value_t* v, long long step, float angle, float* corners) {
    const float cx = (float)v[0], cy = (float)v[step];
    const float rx = __fmul_rn((float)v[2 * step], 0.5f), ry = __fmul_rn((float)v[3 * step], 0.5f);
    const float cosine = (float)cos((double)angle), sine = (float)sin((double)angle);
    const float wx = __fmul_rn(rx, cosine), wy = __fmul_rn(rx, sine);
    const float hx = __fmul_rn(-ry, sine), hy = __fmul_rn(ry, cosine);
    const float left_x = __fsub_rn(cx, wx), left_y = __fsub_rn(cy, wy);
    const float right_x = __fadd_rn(cx, wx), right_y = __fadd_rn(cy, wy);
    corners[0] = __fsub_rn(left_x, hx), corners[1] = __fsub_rn(left_y, hy);
    corners[2] = __fsub_rn(right_x, hx), corners[3] = __fsub_rn(right_y, hy);
    corners[4] = __fadd_rn(right_x, hx), corners[5] = __fadd_rn(right_y, hy);
    corners[6] = __fadd_rn(left_x, hx), corners[7] = __fadd_rn(left_y, hy);
    return Box{fminf(fminf(corners[0], corners[2]), fminf(corners[4], corners[6])),
               fminf(fminf(corners[1], corners[3]), fminf(corners[5], corners[7])),
               fmaxf(fmaxf(corners[0], corners[2]), fmaxf(corners[4], corners[6])),
               fmaxf(fmaxf(corners[1], corners[3]), fmaxf(corners[5], corners[7]))};
}

// A rotated box goes with its corners, in place of points.
__device__ __forceinline__ void add_rotated(const Sink& sink, int frame, int anchor, float score, int class_id,
                                            const value_t* values, long long step, float angle, float* out_points) {
    float corners[8];
    if (!add(sink, frame, anchor, score, class_id, rotated(values, step, angle, corners))) return;
    float* out = out_points + 8 * ((size_t)frame * sink.anchors + anchor);
    for (int c = 0; c < 8; ++c) out[c] = corners[c];
}

// What becomes of the scores: nothing, the sigmoid, or the softmax over one class more, the last, which is no object.
enum { AS_THEY_ARE = 0, SIGMOID = 1, SOFTMAX = 2 };

__device__ __forceinline__ float sigmoid(float v) { return (float)(1.0 / (1.0 + exp(-(double)v))); }

// The share of the class with logit `best` among classes + 1; a logit that is no number makes it none.
__device__ __forceinline__ float softmax(const value_t* logits, long long step, int classes, float best) {
    const float rest = (float)logits[classes * step];
    const double top = (double)(rest > best ? rest : best);
    double sum = 0.0;
    for (int c = 0; c <= classes; ++c) sum += exp((double)(float)logits[c * step] - top);
    return (float)(exp((double)best - top) / sum);
}

// A score a class: the best class of each anchor, times its objectness where there is one. Strides count values.
// With ROTATED, `points` are angles, and the corners of the boxes are written instead.
extern "C" __global__ void best_class(
    const value_t* boxes, long long box_frame, long long box_anchor, long long box_step,
    const value_t* scores, long long score_frame, long long score_anchor, long long score_class,
    const value_t* objectness, long long object_frame, long long object_anchor, int has_objectness, int logits,
    int coding, float unit_x, float unit_y, int width, int height,
    const value_t* points, long long point_frame, long long point_anchor, long long point_step, int columns,
    const float* min_score, int classes, float floor, int anchors, int capacity,
    key_t64* keys, int* tallies, float* out_boxes, int* out_classes, float* out_points) {
    const int anchor = blockIdx.x * blockDim.x + threadIdx.x, frame = blockIdx.y;
    if (anchor >= anchors) return;
    const Sink sink{min_score, classes, floor, anchors, capacity, keys, tallies, out_boxes, out_classes};

    float object = 1.0f;
    if (has_objectness) {
        object = (float)objectness[frame * object_frame + anchor * object_anchor];
        if (!reaches(sink, frame, object)) return;  // class scores are at most 1
    }
    const value_t* score_of = scores + frame * score_frame + anchor * score_anchor;
    float best = (float)score_of[0];
    int class_id = 0;
    for (int c = 1; c < classes; ++c) {
        const float score = (float)score_of[c * score_class];
        // The first of equals stays; the first that is no number wins, so that it is seen.
        if (score > best || (score != score && best == best)) {
            best = score;
            class_id = c;
        }
    }
    if (logits == SIGMOID) best = sigmoid(best);
    if (logits == SOFTMAX) best = softmax(score_of, score_class, classes, best);
    if (has_objectness) best = __fmul_rn(best, object);
    if (!reaches(sink, frame, best) || !wanted(sink, frame, best, class_id)) return;
    const value_t* values = boxes + frame * box_frame + anchor * box_anchor;
    const value_t* own = points + frame * point_frame + anchor * point_anchor;
    if (coding == ROTATED) {
        add_rotated(sink, frame, anchor, best, class_id, values, box_step, (float)own[0], out_points);
        return;
    }
    if (add(sink, frame, anchor, best, class_id, decode(values, box_step, coding, unit_x, unit_y, anchor, width, height)))
        keep(sink, frame, anchor, own, point_step, columns, out_points);
}

// A logit a class: each class of a row may be an object of its own. Anchor = row x classes + class.
extern "C" __global__ void each_class(
    const value_t* boxes, long long box_frame, long long box_row, long long box_step,
    const value_t* scores, long long score_frame, long long score_row, long long score_class,
    int coding, float unit_x, float unit_y,
    const value_t* points, long long point_frame, long long point_row, long long point_step, int columns,
    const float* min_score, int classes, float floor, int anchors, int capacity,
    key_t64* keys, int* tallies, float* out_boxes, int* out_classes, float* out_points) {
    const int anchor = blockIdx.x * blockDim.x + threadIdx.x, frame = blockIdx.y;
    if (anchor >= anchors) return;
    const Sink sink{min_score, classes, floor, anchors, capacity, keys, tallies, out_boxes, out_classes};

    const int row = anchor / classes, class_id = anchor % classes;
    const float score = sigmoid((float)scores[frame * score_frame + row * score_row + class_id * score_class]);
    if (!reaches(sink, frame, score) || !wanted(sink, frame, score, class_id)) return;
    const value_t* values = boxes + frame * box_frame + row * box_row;
    if (add(sink, frame, anchor, score, class_id, decode(values, box_step, coding, unit_x, unit_y, row, 0, 0)))
        keep(sink, frame, anchor, points + frame * point_frame + row * point_row, point_step, columns, out_points);
}

// One score and one class an anchor, as networks give that end in a selection of their own. ROTATED as in best_class.
extern "C" __global__ void given_class(
    const value_t* boxes, long long box_frame, long long box_anchor, long long box_step,
    const value_t* scores, long long score_frame, long long score_anchor,
    const label_t* labels, long long label_frame, long long label_anchor,
    int coding, float unit_x, float unit_y,
    const value_t* points, long long point_frame, long long point_anchor, long long point_step, int columns,
    const float* min_score, int classes, float floor, int anchors, int capacity,
    key_t64* keys, int* tallies, float* out_boxes, int* out_classes, float* out_points) {
    const int anchor = blockIdx.x * blockDim.x + threadIdx.x, frame = blockIdx.y;
    if (anchor >= anchors) return;
    const Sink sink{min_score, classes, floor, anchors, capacity, keys, tallies, out_boxes, out_classes};

    const float score = (float)scores[frame * score_frame + anchor * score_anchor];
    if (!reaches(sink, frame, score)) return;
    const float label = (float)labels[frame * label_frame + anchor * label_anchor];
    // A label outside the list, or no number, is no class (-1); the comparison comes before the cast can overflow.
    const int class_id = (label >= 0.0f && label < (float)classes) ? (int)label : -1;
    if (!wanted(sink, frame, score, class_id)) return;
    const value_t* values = boxes + frame * box_frame + anchor * box_anchor;
    const value_t* own = points + frame * point_frame + anchor * point_anchor;
    if (coding == ROTATED) {
        add_rotated(sink, frame, anchor, score, class_id, values, box_step, (float)own[0], out_points);
        return;
    }
    if (add(sink, frame, anchor, score, class_id, decode(values, box_step, coding, unit_x, unit_y, anchor, 0, 0)))
        keep(sink, frame, anchor, own, point_step, columns, out_points);
}

__device__ __forceinline__ float zero_to_one(float v) { return v < 0.0f ? 0.0f : (v > 1.0f ? 1.0f : v); }

// YuNet: class, objectness, box and five landmarks of each cell, from a tensor each at strides 8, 16 and 32.
// All are C-contiguous, [frame][cell][values]. out_points: (frames, anchors, 15), x and y in network pixels and the
// face's score, which each of its landmarks gets.
extern "C" __global__ void faces(
    const value_t* cls_8, const value_t* cls_16, const value_t* cls_32,
    const value_t* obj_8, const value_t* obj_16, const value_t* obj_32,
    const value_t* bbox_8, const value_t* bbox_16, const value_t* bbox_32,
    const value_t* kps_8, const value_t* kps_16, const value_t* kps_32,
    int width, int height,
    const float* min_score, int classes, float floor, int anchors, int capacity,
    key_t64* keys, int* tallies, float* out_boxes, int* out_classes, float* out_points) {
    const int anchor = blockIdx.x * blockDim.x + threadIdx.x, frame = blockIdx.y;
    if (anchor >= anchors) return;
    const Sink sink{min_score, classes, floor, anchors, capacity, keys, tallies, out_boxes, out_classes};

    const Cell c = cell(anchor, width, height);
    const size_t place = (size_t)frame * (width / (8 << c.level)) * (height / (8 << c.level)) + c.within;
    const value_t* cls = c.level == 0 ? cls_8 : c.level == 1 ? cls_16 : cls_32;
    const value_t* obj = c.level == 0 ? obj_8 : c.level == 1 ? obj_16 : obj_32;
    const value_t* bbox = (c.level == 0 ? bbox_8 : c.level == 1 ? bbox_16 : bbox_32) + 4 * place;
    const value_t* kps = (c.level == 0 ? kps_8 : c.level == 1 ? kps_16 : kps_32) + 10 * place;

    const float score = __fsqrt_rn(__fmul_rn(zero_to_one((float)cls[place]), zero_to_one((float)obj[place])));
    if (!reaches(sink, frame, score) || !wanted(sink, frame, score, 0)) return;
    const Box box = grid_box(c, (float)bbox[0], (float)bbox[1], (float)bbox[2], (float)bbox[3]);
    if (!add(sink, frame, anchor, score, 0, box)) return;
    float* points = out_points + 15 * ((size_t)frame * anchors + anchor);
    for (int k = 0; k < 5; ++k) {
        points[3 * k] = __fmul_rn(__fadd_rn((float)kps[2 * k], c.x), c.stride);
        points[3 * k + 1] = __fmul_rn(__fadd_rn((float)kps[2 * k + 1], c.y), c.stride);
        points[3 * k + 2] = score;
    }
}
