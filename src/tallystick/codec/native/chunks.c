/* Chunks of an entry log: twins of codec/chunks.py. */

#include "codec.h"

/* Where the chunks end, and the CRC of each. */
typedef struct {
    int64_t *ends, *checksums;
    Py_ssize_t count;
} Chunks;

/* Whether the frames begin at 0, ascend, and end with the bytes. */
static bool are_starts(const Py_buffer *starts, Py_ssize_t count, Py_ssize_t bytes) {
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t start = number_at(starts, at);
        if (start < 0 || start >= bytes || (at ? start <= number_at(starts, at - 1) : start != 0))
            return false;
    }
    return count || !bytes;
}

/* There is room for a chunk a frame. Returns the CRC of what is behind the last one. */
static uint32_t cut(const Py_buffer *frames, const Py_buffer *starts, Py_ssize_t count, int64_t chunk_bytes,
                    int64_t size, uint32_t crc, Chunks *chunks) {
    const uint8_t *bytes = frames->buf;
    Py_ssize_t begin = 0; /* of what is in no CRC yet */
    for (Py_ssize_t at = 1; at <= count; at++) {
        Py_ssize_t stop = at < count ? (Py_ssize_t)number_at(starts, at) : frames->len;
        if (stop - begin < chunk_bytes - size)
            continue;
        chunks->ends[chunks->count] = stop;
        chunks->checksums[chunks->count++] = crc32c_update(crc, bytes + begin, (size_t)(stop - begin));
        begin = stop, size = 0, crc = 0;
    }
    return crc32c_update(crc, bytes + begin, (size_t)(frames->len - begin));
}

static PyObject *cut_all(PyObject *module, const Py_buffer *frames, const Py_buffer *starts, Py_ssize_t count,
                         int64_t chunk_bytes, int64_t size, uint32_t crc) {
    Chunks chunks = {PyMem_Malloc(((size_t)count + 1) * sizeof(int64_t)),
                     PyMem_Malloc(((size_t)count + 1) * sizeof(int64_t)), 0};
    PyObject *ends = NULL, *checksums = NULL, *result = NULL;
    if (chunks.ends == NULL || chunks.checksums == NULL) {
        PyErr_NoMemory();
    } else {
        crc = cut(frames, starts, count, chunk_bytes, size, crc, &chunks);
        ends = number_array(module, 'Q', chunks.ends, chunks.count);
        checksums = ends == NULL ? NULL : number_array(module, 'Q', chunks.checksums, chunks.count);
    }
    PyMem_Free(chunks.ends);
    PyMem_Free(chunks.checksums);
    if (checksums != NULL)
        result = Py_BuildValue("(OOk)", ends, checksums, (unsigned long)crc);
    Py_XDECREF(ends);
    Py_XDECREF(checksums);
    return result;
}

PyObject *cut_chunks(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "cut_chunks", {"frames", "starts", "chunk_bytes", "size", "crc"}, 5, 5};
    PyObject *bound[5], *result = NULL;
    int64_t chunk_bytes, size, crc;
    Py_buffer frames, starts;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[2], &chunk_bytes) ||
        !to_int64(bound[3], &size) || !to_int64(bound[4], &crc) ||
        PyObject_GetBuffer(bound[0], &frames, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!open_column(&starts, bound[1])) {
        PyBuffer_Release(&frames);
        return NULL;
    }
    Py_ssize_t count = starts.len / (Py_ssize_t)sizeof(int64_t);
    bool plain = size >= 0 && size < chunk_bytes && crc >= 0 && crc <= UINT32_MAX &&
                 are_starts(&starts, count, frames.len);
    if (plain)
        result = cut_all(module, &frames, &starts, count, chunk_bytes, size, (uint32_t)crc);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&frames);
    return plain ? result : call_reference(module, &SIGNATURE, bound);
}

/* How many chunks are good; -1 if anything is not as callers have it. */
static Py_ssize_t count_good(const Py_buffer *data, const Py_buffer *bounds, const Py_buffer *checksums) {
    Py_ssize_t count = checksums->len / (Py_ssize_t)sizeof(uint32_t);
    if (checksums->itemsize != sizeof(uint32_t) || bounds->len / (Py_ssize_t)sizeof(int64_t) != count + 1)
        return -1;
    int64_t first = number_at(bounds, 0), start = first;
    if (first < 0)
        return -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t stop = number_at(bounds, at + 1);
        uint32_t checksum;
        if (stop < start)
            return -1;
        memcpy(&checksum, (const uint8_t *)checksums->buf + at * (Py_ssize_t)sizeof checksum, sizeof checksum);
        if (stop - first > data->len ||
            crc32c_update(0, (const uint8_t *)data->buf + (start - first), (size_t)(stop - start)) != checksum)
            return at;
        start = stop;
    }
    return count;
}

PyObject *count_good_chunks(ARGUMENTS) {
    static const Signature SIGNATURE = {"count_good_chunks", {"data", "bounds", "checksums"}, 3, 3};
    PyObject *bound[3];
    Py_buffer data, bounds, checksums;
    Py_ssize_t good = -1;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ||
        PyObject_GetBuffer(bound[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!open_column(&bounds, bound[1])) {
        PyBuffer_Release(&data);
        return NULL;
    }
    if (!PyObject_GetBuffer(bound[2], &checksums, PyBUF_SIMPLE)) {
        good = count_good(&data, &bounds, &checksums);
        PyBuffer_Release(&checksums);
    }
    PyErr_Clear();
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&data);
    return good < 0 ? call_reference(module, &SIGNATURE, bound) : PyLong_FromSsize_t(good);
}
