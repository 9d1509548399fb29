/* CRC32C by the processor's instructions where it has them, else by tables, eight bytes a step.

   The instruction waits three cycles for its own result but can start each cycle. So three pieces of STRIDE bytes are
   computed side by side, and joined: a CRC followed by STRIDE zeros is a linear function of it, kept as a table for
   each of its four bytes. */

#include "codec.h"

#define POLYNOMIAL 0x82F63B78u /* reflected */
#define STRIDE 256

static uint32_t steps[8][256];   /* [n][byte]: the byte, followed by n zeros */
static uint32_t strides[4][256]; /* [n][byte]: the byte in place n, followed by STRIDE zeros */

Crc32c crc32c_update = crc32c_by_table;

uint32_t crc32c_by_table(uint32_t crc, const uint8_t *bytes, size_t count) {
    crc = ~crc;
    for (; count >= 8; bytes += 8, count -= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                              (uint32_t)bytes[3] << 24);
        crc = steps[7][low & 255] ^ steps[6][low >> 8 & 255] ^ steps[5][low >> 16 & 255] ^ steps[4][low >> 24] ^
              steps[3][bytes[4]] ^ steps[2][bytes[5]] ^ steps[1][bytes[6]] ^ steps[0][bytes[7]];
    }
    for (; count; bytes++, count--)
        crc = crc >> 8 ^ steps[0][(crc ^ *bytes) & 255];
    return ~crc;
}

static void make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        steps[0][byte] = crc;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int byte = 0; byte < 256; byte++)
            steps[zeros][byte] = steps[zeros - 1][byte] >> 8 ^ steps[0][steps[zeros - 1][byte] & 255];
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << 8 * place;
            for (int zeros = 0; zeros < STRIDE; zeros++)
                crc = crc >> 8 ^ steps[0][crc & 255];
            strides[place][byte] = crc;
        }
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <nmmintrin.h>
#define HARDWARE "sse4.2"
#if defined(__clang__) && __clang_major__ >= 14
#define WITH_INSTRUCTIONS __attribute__((target("sse4.2,crc32")))
#else
#define WITH_INSTRUCTIONS __attribute__((target("sse4.2")))
#endif
#define EIGHT(crc, word) _mm_crc32_u64(crc, word)
#define ONE(crc, byte) _mm_crc32_u8((uint32_t)(crc), byte)

/* Asked of the processor itself: __builtin_cpu_supports says no in a library that zig made, whatever the processor. */
static bool has_instructions(void) {
    unsigned int eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_SSE4_2);
}

#elif defined(__aarch64__) && defined(__linux__) && defined(__AARCH64EL__)

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define HARDWARE "armv8"
#define WITH_INSTRUCTIONS __attribute__((target("+crc")))
#define EIGHT(crc, word) __crc32cd((uint32_t)(crc), word)
#define ONE(crc, byte) __crc32cb((uint32_t)(crc), byte)

static bool has_instructions(void) { return getauxval(AT_HWCAP) & HWCAP_CRC32; }

#endif

#ifdef HARDWARE

static inline uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word); /* in the processor's order, which is the little end first */
    return word;
}

static inline uint32_t past_stride(uint64_t crc) {
    return strides[0][crc & 255] ^ strides[1][crc >> 8 & 255] ^ strides[2][crc >> 16 & 255] ^ strides[3][crc >> 24 & 255];
}

WITH_INSTRUCTIONS static uint32_t crc32c_by_instructions(uint32_t start, const uint8_t *bytes, size_t count) {
    uint64_t crc = (uint32_t)~start;
    for (; count >= 3 * STRIDE; bytes += 3 * STRIDE, count -= 3 * STRIDE) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < STRIDE; at += 8) {
            crc = EIGHT(crc, word_at(bytes + at));
            second = EIGHT(second, word_at(bytes + STRIDE + at));
            third = EIGHT(third, word_at(bytes + 2 * STRIDE + at));
        }
        crc = past_stride(past_stride(crc) ^ second) ^ third;
    }
    for (; count >= 8; bytes += 8, count -= 8)
        crc = EIGHT(crc, word_at(bytes));
    for (; count; bytes++, count--)
        crc = ONE(crc, *bytes);
    return ~(uint32_t)crc;
}

#endif

const char *choose_crc32c(void) {
    make_tables();
#ifdef HARDWARE
    if (has_instructions()) {
        crc32c_update = crc32c_by_instructions;
        return HARDWARE;
    }
#endif
    return "table";
}

/* The digest of an entry: CRC32C of its header, then of its payload. */
static bool digest_of(PyObject *header, PyObject *payload, uint8_t *digest) {
    uint32_t crc = 0;
    PyObject *parts[] = {header, payload};
    for (int at = 0; at < 2; at++) {
        Py_buffer view;
        if (PyObject_GetBuffer(parts[at], &view, PyBUF_SIMPLE) < 0)
            return false;
        crc = crc32c_update(crc, view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
    }
    write_u32(digest, crc);
    return true;
}

PyObject *crc32c_digest(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32c_digest", {"header", "payload"}, 2, 2};
    PyObject *bound[2];
    uint8_t digest[4];
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !digest_of(bound[0], bound[1], digest))
        return NULL;
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

PyObject *crc32c_digests(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32c_digests", {"headers", "payloads"}, 2, 2};
    PyObject *bound[2], *headers = NULL, *payloads = NULL, *digests = NULL;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || (headers = PySequence_Tuple(bound[0])) == NULL ||
        (payloads = PySequence_Tuple(bound[1])) == NULL)
        goto done;
    Py_ssize_t count = PyTuple_Size(headers);
    if (count != PyTuple_Size(payloads)) {
        PyErr_SetString(PyExc_ValueError, "there are not as many headers as payloads");
        goto done;
    }
    digests = PyBytes_FromStringAndSize(NULL, 4 * count);
    uint8_t *digest = digests == NULL ? NULL : (uint8_t *)PyBytes_AsString(digests);
    for (Py_ssize_t at = 0; digests != NULL && at < count; at++)
        if (!digest_of(PyTuple_GetItem(headers, at), PyTuple_GetItem(payloads, at), digest + 4 * at))
            Py_CLEAR(digests);
done:
    Py_XDECREF(headers);
    Py_XDECREF(payloads);
    return digests;
}

/* For tests on a machine that has the instructions: what others compute. */
PyObject *crc32c_table(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32c_table", {"data", "initial"}, 2, 2};
    PyObject *bound[2];
    Py_buffer view;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    unsigned long crc = PyLong_AsUnsignedLong(bound[1]);
    if (PyErr_Occurred() || PyObject_GetBuffer(bound[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    crc = crc32c_by_table((uint32_t)crc, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}
