/* CRC32, that of zlib: by carry-less products or the processor's CRC instructions where it has them, else by tables,
   eight bytes a step.

   With carry-less products (x86-64) 16 bytes are carried past the 16 (64) behind them: the two halves are multiplied by
   what so many zeros make of a one at their places, and added to the bytes there. What is left are 16 bytes with the
   same CRC. */

#include "codec.h"

#define POLYNOMIAL 0xEDB88320u /* reflected */

static uint32_t steps[8][256]; /* [n][byte]: the byte, followed by n zeros */

Crc32 crc32_update = crc32_by_table;

uint32_t crc32_by_table(uint32_t crc, const uint8_t *bytes, size_t count) {
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

static uint32_t past_zeros(uint32_t crc, int bits) {
    while (bits--)
        crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    return crc;
}

static void make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int zeros = 0; zeros < 8; zeros++)
            steps[zeros][byte] = past_zeros(byte, 8 * (zeros + 1));
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <emmintrin.h>
#include <wmmintrin.h>
#define HARDWARE
#define WITH_INSTRUCTIONS __attribute__((target("pclmul")))
#define PIECE 16
#define PIECES 4 /* side by side: a product waits some cycles for its factors */
#define LEAST (PIECE * PIECES)

static int64_t past_piece[2], past_pieces[2]; /* factors for the first and the second half of a piece */

static bool has_instructions(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul");
}

/* Bits are reflected: bit 31 of a CRC is x^0, and a product of two such numbers stands one bit too low. */
static void make_factors(int64_t *factors, int bits) {
    factors[0] = (int64_t)((uint64_t)past_zeros(0x80000000u, bits + 32) << 1);
    factors[1] = (int64_t)((uint64_t)past_zeros(0x80000000u, bits - 32) << 1);
}

static void prepare(void) {
    make_factors(past_piece, 8 * PIECE);
    make_factors(past_pieces, 8 * PIECE * PIECES);
}

WITH_INSTRUCTIONS static inline __m128i carry(__m128i piece, __m128i factors, __m128i behind) {
    __m128i first = _mm_clmulepi64_si128(piece, factors, 0x00), second = _mm_clmulepi64_si128(piece, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), behind);
}

WITH_INSTRUCTIONS static inline __m128i piece_at(const uint8_t *bytes) {
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

WITH_INSTRUCTIONS static uint32_t crc32_by_instructions(uint32_t crc, const uint8_t *bytes, size_t count) {
    if (count < LEAST)
        return crc32_by_table(crc, bytes, count);
    __m128i pieces[PIECES], factors = _mm_set_epi64x(past_pieces[1], past_pieces[0]);
    for (int at = 0; at < PIECES; at++)
        pieces[at] = piece_at(bytes + PIECE * at);
    pieces[0] = _mm_xor_si128(pieces[0], _mm_cvtsi32_si128((int)~crc));
    for (bytes += LEAST, count -= LEAST; count >= LEAST; bytes += LEAST, count -= LEAST)
        for (int at = 0; at < PIECES; at++)
            pieces[at] = carry(pieces[at], factors, piece_at(bytes + PIECE * at));
    factors = _mm_set_epi64x(past_piece[1], past_piece[0]);
    for (int at = 1; at < PIECES; at++)
        pieces[at] = carry(pieces[at - 1], factors, pieces[at]);
    __m128i last = pieces[PIECES - 1];
    for (; count >= PIECE; bytes += PIECE, count -= PIECE)
        last = carry(last, factors, piece_at(bytes));
    uint8_t rest[PIECE];
    memcpy(rest, &last, PIECE);
    return crc32_by_table(crc32_by_table(UINT32_MAX, rest, PIECE), bytes, count); /* which begins with no bit set */
}

#elif defined(__aarch64__) && defined(__linux__) && defined(__AARCH64EL__)

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define HARDWARE
#define WITH_INSTRUCTIONS __attribute__((target("+crc")))

static bool has_instructions(void) { return getauxval(AT_HWCAP) & HWCAP_CRC32; }

static void prepare(void) {}

WITH_INSTRUCTIONS static uint32_t crc32_by_instructions(uint32_t crc, const uint8_t *bytes, size_t count) {
    crc = ~crc;
    for (; count >= 8; bytes += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        crc = __crc32d(crc, word);
    }
    for (; count; bytes++, count--)
        crc = __crc32b(crc, *bytes);
    return ~crc;
}

#endif

void choose_crc32(void) {
    make_tables();
#ifdef HARDWARE
    if (has_instructions()) {
        prepare();
        crc32_update = crc32_by_instructions;
    }
#endif
}

/* For tests: what is in use here, and what is where there are no instructions. */
PyObject *crc32_ways(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32_ways", {"data", "initial"}, 2, 2};
    PyObject *bound[2];
    Py_buffer view;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    uint32_t initial = (uint32_t)PyLong_AsUnsignedLong(bound[1]);
    if (PyErr_Occurred() || PyObject_GetBuffer(bound[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t used = crc32_update(initial, view.buf, (size_t)view.len);
    uint32_t table = crc32_by_table(initial, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return Py_BuildValue("(kk)", (unsigned long)used, (unsigned long)table);
}
