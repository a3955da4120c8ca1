// A part of an NV12 frame in device memory, as cut.cu and sharpness.cu take it; ops/cut.py's PART.

#pragma once

struct Part {
    const unsigned char* source;  // the frame's first luma row; chroma follows `rows` rows below
    unsigned char* to;            // the cut surface's first luma row; its rows lie without gaps
    int left, top, right, bottom; // in pixels; left and top are even, right and bottom exclusive
    int pitch, rows;              // bytes from row to row; luma rows, padding included
    int step;                     // samples that become one, along each side
    int width, height;            // the cut surface's, padding included; even
    int unused;
};
