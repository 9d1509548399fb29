/* What frames of protocol version 3 are made of: twins of codec/varints.py and of parts of codec/v3_rows.py. */

#ifndef TALLYSTICK_V3_H
#define TALLYSTICK_V3_H

#include "codec.h"

#define LENGTH_BYTES 4
#define HEADER_BYTES 5     /* before the request id */
#define NUMBER_BYTES 9     /* of a positive int64, at most */
#define ANY_NUMBER_BYTES 10 /* of a negative one, too */
#define SIZE_BYTES 4       /* of a length, at most */
#define PREFIX_BYTES 28    /* of a stored frame, before its entry: of an ADD, and of the response to a READ */

/* A number of so many bytes at most, however long it is written; of ten bytes the highest bits do not count. */
static inline bool read_number(Cursor *cursor, int most, uint64_t *number) {
    *number = 0;
    for (int at = 0; at < most && cursor->at < cursor->end; at++) {
        uint8_t byte = *cursor->at++;
        *number |= (uint64_t)(byte & 0x7F) << 7 * at;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static inline uint8_t *put_number(uint8_t *to, uint64_t number) {
    for (; number > 0x7F; number >>= 7)
        *to++ = (uint8_t)(number | 0x80);
    *to++ = (uint8_t)number;
    return to;
}

/* How many bytes put_number writes. */
static inline uint64_t number_bytes(uint64_t number) {
    uint64_t bytes = 1;
    for (; number > 0x7F; number >>= 7)
        bytes++;
    return bytes;
}

/* Whether what follows is a length of no more than the rest, up to stop, in the shortest form. */
static inline bool read_size(Cursor *cursor, const uint8_t *stop, uint64_t *size) {
    const uint8_t *start = cursor->at;
    return read_number(cursor, SIZE_BYTES, size) && stop >= cursor->at && *size <= (uint64_t)(stop - cursor->at) &&
           number_bytes(*size) == (uint64_t)(cursor->at - start);
}

/* Whether what follows is the length of all the rest, up to stop. */
static inline bool skip_rest_size(Cursor *cursor, const uint8_t *stop) {
    uint64_t size;
    return read_size(cursor, stop, &size) && size == (uint64_t)(stop - cursor->at);
}

/* Reads a header of this operation, whose length says where it ends, from behind a frame's length. */
static inline bool skip_header(Cursor *cursor, char operation, uint64_t *txn) {
    const uint8_t *start = cursor->at + 2;
    const char fields[] = {0x08, 3, 0x10, operation, 0x18};
    if (cursor->end - cursor->at < 2 || cursor->at[0] != 0x0a)
        return false;
    cursor->at = start;
    return skip(cursor, fields, sizeof fields) && read_number(cursor, NUMBER_BYTES, txn) &&
           cursor->at - start == start[-1];
}

/* Such a header: what it announces, before it and in it, and its request id. */
static inline uint8_t *put_header(uint8_t *to, char operation, uint64_t txn, size_t further_bytes) {
    const uint8_t fields[] = {0x08, 3, 0x10, (uint8_t)operation, 0x18};
    *to++ = 0x0a;
    *to++ = (uint8_t)(HEADER_BYTES + number_bytes(txn) + further_bytes);
    memcpy(to, fields, sizeof fields);
    return put_number(to + sizeof fields, txn);
}

/* Whether so many stored frames fill a buffer, each with an entry of this many bytes at least. */
static inline bool are_stored(const Py_buffer *frames, Py_ssize_t count, Py_ssize_t least) {
    const uint8_t *bytes = frames->buf;
    Py_ssize_t left = frames->len;
    for (; count > 0; count--) {
        if (left < PREFIX_BYTES + least || read_u32(bytes) > (uint64_t)(left - LENGTH_BYTES))
            return false;
        Py_ssize_t frame = LENGTH_BYTES + (Py_ssize_t)read_u32(bytes);
        if (frame < PREFIX_BYTES + least)
            return false;
        bytes += frame, left -= frame;
    }
    return !left;
}

#endif
