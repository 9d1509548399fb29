/* What the files of the compiled codec share: arguments, buffers, numbers, and the Python types that results have. */

#ifndef TALLYSTICK_CODEC_H
#define TALLYSTICK_CODEC_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Of a function that Python calls: positional arguments, then those by keyword. */
#define ARGUMENTS PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames

#define MOST_ARGUMENTS 9

typedef struct {
    const char *name;
    const char *arguments[MOST_ARGUMENTS + 1]; /* ends with NULL */
    int required;
    int positional;
} Signature;

/* Binds arguments as Python does; optional ones that are missing are NULL. Returns false with an exception set. */
bool bind_arguments(const Signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                    PyObject **bound);

/* What results are made of. Each is imported when it is first needed: its module imports this one. */
typedef enum {
    ADD_RUN,
    ADD_FRAMES,
    V3_ADD_RUN,
    EVEN_ENTRIES,
    SPREAD_ENTRIES,
    ENTRY_RUN,
    PACKED_ENTRIES,
    RECORD_RUN,
    PULLED_RUN,
    STOP_END,
    STOP_PARTIAL,
    STOP_BLANK,
    STOP_NOTHING,
    STOP_DAMAGED,
    ARRAY,
    REFERENCES,
    IMPORTED_COUNT,
} Imported;

typedef struct {
    PyObject *imported[IMPORTED_COUNT];
    PyObject *crc32c_digest; /* this module's functions: who passes one of them means CRC32C */
    PyObject *crc32c_digests;
} State;

State *state_of(PyObject *module);

/* Returns a borrowed reference, or NULL with an exception set. */
PyObject *imported(PyObject *module, Imported which);

/* Calls the function in Python of which the caller is the twin. */
PyObject *call_reference(PyObject *module, const Signature *signature, PyObject *const *bound);

/* The filled part of a buffer, which is held until close_region. No byte before start or from end on is read. */
typedef struct {
    Py_buffer view;
    const uint8_t *bytes;
    Py_ssize_t start;
    Py_ssize_t end;
} Region;

bool open_region(Region *region, PyObject *buffer, PyObject *start, PyObject *end);
void close_region(Region *region);

bool to_int64(PyObject *object, int64_t *number);

/* The numbers of a list, tuple or range, which are the caller's to release with PyMem_Free, and how many they are. NULL
   if it is another object or has others in it; an exception may be set. */
int64_t *int64s_of(PyObject *numbers, Py_ssize_t *count);

/* Steals the reference to object, and releases what was there. */
static inline void replace(PyObject **place, PyObject *object) {
    PyObject *before = *place;
    *place = object;
    Py_XDECREF(before);
}

/* Steals the reference to item, which may be NULL. Returns false with an exception set. */
bool put(PyObject *list, Py_ssize_t index, PyObject *item);
bool append(PyObject *list, PyObject *item);

/* An array of these numbers, of the kind 'q' or 'Q'. */
PyObject *number_array(PyObject *module, int kind, const int64_t *numbers, Py_ssize_t count);

/* Steals both references, of which the first may be NULL: (first, position). */
PyObject *with_position(PyObject *first, Py_ssize_t position);

/* view[start:stop] */
PyObject *slice_of(PyObject *view, Py_ssize_t start, Py_ssize_t stop);

/* Whole numbers of 64 bits, held until they are released. Returns false with an exception set. */
bool open_column(Py_buffer *column, PyObject *object);

static inline int64_t number_at(const Py_buffer *column, Py_ssize_t at) {
    int64_t number;
    memcpy(&number, (const uint8_t *)column->buf + at * (Py_ssize_t)sizeof number, sizeof number); /* as it is aligned */
    return number;
}

static inline uint16_t read_u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline uint64_t read_u64(const uint8_t *at) { return (uint64_t)read_u32(at) << 32 | read_u32(at + 4); }

static inline int32_t read_i32(const uint8_t *at) { return (int32_t)read_u32(at); }

static inline int64_t read_i64(const uint8_t *at) { return (int64_t)read_u64(at); }

static inline void write_u32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24), at[1] = (uint8_t)(value >> 16), at[2] = (uint8_t)(value >> 8), at[3] = (uint8_t)value;
}

static inline void write_u64(uint8_t *at, uint64_t value) {
    write_u32(at, (uint32_t)(value >> 32));
    write_u32(at + 4, (uint32_t)value);
}

/* A place in bytes that are read one thing after another. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* Whether these bytes are next; they are behind the cursor then. */
static inline bool skip(Cursor *cursor, const char *literal, Py_ssize_t count) {
    if (cursor->end - cursor->at < count || memcmp(cursor->at, literal, (size_t)count))
        return false;
    cursor->at += count;
    return true;
}

#define SKIP(cursor, literal) skip(cursor, literal, (Py_ssize_t)sizeof(literal) - 1)

/* CRC32C, Castagnoli's: continues from crc, which is 0 at the start. */
typedef uint32_t (*Crc32c)(uint32_t crc, const uint8_t *bytes, size_t count);

extern Crc32c crc32c_update;
uint32_t crc32c_by_table(uint32_t crc, const uint8_t *bytes, size_t count);
const char *choose_crc32c(void); /* Returns the name of the instructions that are used. */

/* CRC32, zlib's: the same. */
typedef uint32_t (*Crc32)(uint32_t crc, const uint8_t *bytes, size_t count);

extern Crc32 crc32_update;
uint32_t crc32_by_table(uint32_t crc, const uint8_t *bytes, size_t count);
void choose_crc32(void);
/* An entry: header (ledger 8, entry 8, LAC 8, length 8), digest, payload. */
#define ENTRY_HEADER_BYTES 32
#define ENTRY_START_BYTES (ENTRY_HEADER_BYTES + 4) /* before the payload, with a CRC32C */
#define COPIED_BYTES (8 * 1024)                    /* of an entry whose payload is copied, at most */

/* Whether these bytes are this entry, with a good CRC32C. */
bool is_entry(const uint8_t *bytes, Py_ssize_t size, int64_t ledger, int64_t entry);

/* The AddRun of count frames from position on, whose lengths are checked; and where the last one ends. */
PyObject *add_run(PyObject *module, const uint8_t *bytes, Py_ssize_t position, Py_ssize_t count);

/* The fields of an EvenEntries, which are sure to be good: its data, whose reference is the caller's to release, and
   the bytes of an entry and before each. Returns false with an exception set. */
typedef struct {
    PyObject *data;
    Py_ssize_t size;
    Py_ssize_t gap;
} Even;

bool even_of(PyObject *entries, Even *even);

/* Continues the hash of a text, String.hashCode: of ASCII, which has one UTF-16 unit for each byte. Returns false for any
   other. */
bool hash_ascii(const uint8_t *text, Py_ssize_t count, uint32_t *hash);

PyObject *scan_adds(ARGUMENTS);
PyObject *scan_uniform_adds(ARGUMENTS);
PyObject *ack_adds(ARGUMENTS);
PyObject *scan_acks(ARGUMENTS);
PyObject *encode_adds(ARGUMENTS);
PyObject *scan_read_requests(ARGUMENTS);
PyObject *encode_reads(ARGUMENTS);
PyObject *scan_reads(ARGUMENTS);
PyObject *response_entries(ARGUMENTS);
PyObject *open_entries(ARGUMENTS);
PyObject *open_singles(ARGUMENTS);
PyObject *open_together(ARGUMENTS);
PyObject *crc32c_of_spans(ARGUMENTS);
PyObject *crc32_of_spans(ARGUMENTS);
PyObject *joined_spans(ARGUMENTS);
PyObject *position_texts(ARGUMENTS);
PyObject *scan_messages(ARGUMENTS);
PyObject *scan_members(ARGUMENTS);
PyObject *scan_records(ARGUMENTS);
PyObject *scan_uniform_records(ARGUMENTS);
PyObject *encode_records(ARGUMENTS);
PyObject *crc32_ways(ARGUMENTS);
PyObject *scan_pulled(ARGUMENTS);
PyObject *hash_client_ids(ARGUMENTS);
PyObject *scan_alike(ARGUMENTS);
PyObject *usual_properties(ARGUMENTS);
PyObject *encode_head(ARGUMENTS);
PyObject *split_uniform_batch(ARGUMENTS);
PyObject *scan_requests(ARGUMENTS);
PyObject *encode_units(ARGUMENTS);
PyObject *add_index_entries(ARGUMENTS);
PyObject *runs_of_units(ARGUMENTS);
PyObject *scan_v3_adds(ARGUMENTS);
PyObject *ack_v3_adds(ARGUMENTS);
PyObject *scan_v3_acks(ARGUMENTS);
PyObject *encode_v3_adds(ARGUMENTS);
PyObject *scan_v3_read_requests(ARGUMENTS);
PyObject *encode_v3_reads(ARGUMENTS);
PyObject *scan_v3_reads(ARGUMENTS);
PyObject *encode_v3_read_responses(ARGUMENTS);
PyObject *responses_of_runs(ARGUMENTS);
PyObject *page_pieces(ARGUMENTS);
PyObject *cut_chunks(ARGUMENTS);
PyObject *count_good_chunks(ARGUMENTS);
PyObject *dense_locations(ARGUMENTS);
PyObject *picked_responses(ARGUMENTS);
PyObject *crc32c_of_parts(ARGUMENTS);
PyObject *copy_parts(ARGUMENTS);
PyObject *crc32c_digest(ARGUMENTS);
PyObject *crc32c_digests(ARGUMENTS);
PyObject *crc32c_table(ARGUMENTS);

#endif
