/* Protobuf messages by columns: twins of codec/messages.py. */

#include "codec.h"

#define MOST_FIELDS 32
#define MOST_PAIRS 64
#define VARINT_BYTES 8
#define NAME_TAG 0x0A
#define VALUE_TAG 0x12
#define SHORTEST_PAIR 4
#define LENGTH_BYTES 4
#define NUMBERS_OF_PAIR 5

enum { NUMBER = 0, BYTES = 2, PAIRS = 3 };

typedef struct {
    uint8_t number, kind, bits;
    uint8_t tag[2];
    int tag_bytes;
    Py_ssize_t column; /* the first one */
} Field;

/* A scan in the making. Columns are bytes objects, and where their contents are. */
typedef struct {
    Field fields[MOST_FIELDS];
    Py_ssize_t field_count, column_count, rows;
    PyObject *whole, *present, *columns;
    uint8_t *is_whole, *has, *numbers;
    int64_t *pairs;
    Py_ssize_t pair_count, pair_room;
    bool has_no_memory;
} Scan;

static bool open_table(Scan *scan, PyObject *table) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(table, &bytes, &size) < 0)
        return false;
    if (size % 3 || size > 3 * MOST_FIELDS) {
        PyErr_SetString(PyExc_ValueError, "a table has three bytes for each field");
        return false;
    }
    scan->field_count = size / 3;
    for (Py_ssize_t at = 0; at < scan->field_count; at++) {
        Field *field = &scan->fields[at];
        memcpy(field, bytes + 3 * at, 3);
        if ((field->kind != NUMBER && field->kind != BYTES && field->kind != PAIRS) || field->bits > 62) {
            PyErr_SetString(PyExc_ValueError, "a table has other kinds of fields");
            return false;
        }
        int tag = field->number << 3 | (field->kind == NUMBER ? 0 : 2);
        field->tag_bytes = tag < 0x80 ? 1 : 2;
        field->tag[0] = (uint8_t)(tag < 0x80 ? tag : (tag & 0x7F) | 0x80);
        field->tag[1] = (uint8_t)(tag >> 7);
        field->column = scan->column_count;
        scan->column_count += field->kind == NUMBER ? 1 : field->kind == BYTES ? 2 : 0;
    }
    return true;
}

/* Bytes that are all 0. */
static PyObject *zeros(Py_ssize_t rows, Py_ssize_t row_bytes, uint8_t **place) {
    if (row_bytes && rows > PY_SSIZE_T_MAX / 2 / row_bytes)
        return PyErr_NoMemory();
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, rows * row_bytes);
    if (bytes != NULL)
        memset(*place = (uint8_t *)PyBytes_AsString(bytes), 0, (size_t)(rows * row_bytes));
    return bytes;
}

static bool open_rows(Scan *scan, Py_ssize_t rows) {
    scan->rows = rows;
    return (scan->whole = zeros(rows, 1, &scan->is_whole)) != NULL &&
           (scan->present = zeros(rows, scan->field_count, &scan->has)) != NULL &&
           (scan->columns = zeros(rows, scan->column_count * (Py_ssize_t)sizeof(int64_t), &scan->numbers)) != NULL;
}

static void close_scan(Scan *scan) {
    Py_XDECREF(scan->whole);
    Py_XDECREF(scan->present);
    Py_XDECREF(scan->columns);
    PyMem_Free(scan->pairs);
}

static uint8_t *number_place(const Scan *scan, Py_ssize_t column, Py_ssize_t row) {
    return scan->numbers + (column * scan->rows + row) * (Py_ssize_t)sizeof(int64_t);
}

static void put_number(const Scan *scan, Py_ssize_t column, Py_ssize_t row, int64_t number) {
    memcpy(number_place(scan, column, row), &number, sizeof number);
}

/* Forgets what was taken of a message, and of the pairs all but some. */
static bool not_whole(Scan *scan, Py_ssize_t row, Py_ssize_t pair_count) {
    scan->is_whole[row] = 0;
    for (Py_ssize_t at = 0; at < scan->field_count; at++)
        scan->has[at * scan->rows + row] = 0;
    for (Py_ssize_t column = 0; column < scan->column_count; column++)
        put_number(scan, column, row, 0);
    scan->pair_count = pair_count;
    return false;
}

static bool read_varint(const uint8_t *data, int64_t *at, int64_t end, int64_t *number) {
    uint64_t value = 0;
    int64_t limit = end - *at < VARINT_BYTES ? end - *at : VARINT_BYTES;
    for (int64_t place = 0; place < limit; place++) {
        uint8_t byte = data[*at + place];
        value |= (uint64_t)(byte & 0x7F) << (7 * place);
        if (byte < 0x80) {
            *number = (int64_t)value;
            *at += place + 1;
            return true;
        }
    }
    return false;
}

/* Adds the pair between two places. Returns false for one that has another form, or where memory lacks. */
static bool take_pair(Scan *scan, Py_ssize_t row, const uint8_t *data, int64_t at, int64_t end) {
    int64_t name_size, value_size;
    if (end - at < SHORTEST_PAIR || data[at++] != NAME_TAG || !read_varint(data, &at, end, &name_size) ||
        name_size >= end - at || data[at + name_size] != VALUE_TAG)
        return false;
    int64_t name = at;
    at += name_size + 1;
    if (!read_varint(data, &at, end, &value_size) || value_size != end - at)
        return false;
    if (scan->pair_count == scan->pair_room) {
        Py_ssize_t room = scan->pair_room ? 2 * scan->pair_room : 64;
        int64_t *pairs = PyMem_Realloc(scan->pairs, (size_t)room * NUMBERS_OF_PAIR * sizeof *pairs);
        if (pairs == NULL) {
            scan->has_no_memory = true;
            return false;
        }
        scan->pairs = pairs;
        scan->pair_room = room;
    }
    int64_t *pair = scan->pairs + NUMBERS_OF_PAIR * scan->pair_count++;
    pair[0] = row, pair[1] = name, pair[2] = name_size, pair[3] = at, pair[4] = value_size;
    return true;
}

/* Takes what is behind the tag of a field. Returns false if it is not good. */
static bool take_field(Scan *scan, const Field *field, Py_ssize_t row, const uint8_t *data, int64_t *at, int64_t end) {
    int64_t number;
    if (!read_varint(data, at, end, &number))
        return false;
    if (field->kind == NUMBER) {
        put_number(scan, field->column, row, number);
        return number < (int64_t)1 << field->bits;
    }
    if (number > end - *at)
        return false;
    int64_t start = *at;
    *at += number;
    if (field->kind == PAIRS)
        return take_pair(scan, row, data, start, *at);
    put_number(scan, field->column, row, start);
    put_number(scan, field->column + 1, row, number);
    return true;
}

static bool begins(const Field *field, const uint8_t *data, int64_t at, int64_t end) {
    return field->tag_bytes <= end - at && data[at] == field->tag[0] &&
           (field->tag_bytes == 1 || data[at + 1] == field->tag[1]);
}

/* Takes the message between two places, which are inside the data. Returns whether it is whole. */
static bool take_message(Scan *scan, Py_ssize_t row, const uint8_t *data, int64_t at, int64_t end) {
    Py_ssize_t pair_count = scan->pair_count;
    for (Py_ssize_t place = 0; place < scan->field_count && at < end; place++) {
        const Field *field = &scan->fields[place];
        for (int left = field->kind == PAIRS ? MOST_PAIRS : 1; left && begins(field, data, at, end); left--) {
            at += field->tag_bytes;
            if (!take_field(scan, field, row, data, &at, end))
                return not_whole(scan, row, pair_count);
            scan->has[place * scan->rows + row] = 1;
        }
    }
    if (at != end)
        return not_whole(scan, row, pair_count);
    scan->is_whole[row] = 1;
    return true;
}

/* The four columns. */
static PyObject *result_of(const Scan *scan) {
    if (scan->has_no_memory)
        return PyErr_NoMemory();
    const char *pairs = scan->pairs == NULL ? "" : (const char *)scan->pairs;
    Py_ssize_t pairs_bytes = scan->pair_count * NUMBERS_OF_PAIR * (Py_ssize_t)sizeof *scan->pairs;
    return Py_BuildValue("(OOOy#)", scan->whole, scan->present, scan->columns, pairs, pairs_bytes);
}

/* Some columns of places, held until close_places: the data, and of each message or batch where it starts and ends. */
typedef struct {
    Py_buffer data, starts, ends;
    Py_ssize_t count;
} Places;

static void close_places(Places *places) {
    PyBuffer_Release(&places->ends);
    PyBuffer_Release(&places->starts);
    PyBuffer_Release(&places->data);
}

static bool open_places(Places *places, PyObject *const *bound) {
    if (PyObject_GetBuffer(bound[0], &places->data, PyBUF_SIMPLE) < 0)
        return false;
    if (!open_column(&places->starts, bound[1])) {
        PyBuffer_Release(&places->data);
        return false;
    }
    if (!open_column(&places->ends, bound[2])) {
        PyBuffer_Release(&places->starts);
        PyBuffer_Release(&places->data);
        return false;
    }
    places->count = places->starts.len / (Py_ssize_t)sizeof(int64_t);
    if (places->starts.len == places->ends.len)
        return true;
    PyErr_SetString(PyExc_ValueError, "there are as many starts as ends");
    close_places(places);
    return false;
}

/* Returns false with an exception set. */
static bool place_of(const Places *places, Py_ssize_t at, int64_t *start, int64_t *end) {
    *start = number_at(&places->starts, at);
    *end = number_at(&places->ends, at);
    if (*start >= 0 && *end >= 0 && *end <= places->data.len)
        return true;
    PyErr_SetString(PyExc_ValueError, "a message or batch is not inside its buffer");
    return false;
}

PyObject *scan_messages(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_messages", {"data", "starts", "ends", "table"}, 4, 4};
    PyObject *bound[4], *result = NULL;
    Places places;
    Scan scan = {0};
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_table(&scan, bound[3]) ||
        !open_places(&places, bound))
        return NULL;
    bool good = open_rows(&scan, places.count);
    for (Py_ssize_t row = 0; good && row < places.count; row++) {
        int64_t start, end;
        good = place_of(&places, row, &start, &end);
        if (good)
            take_message(&scan, row, places.data.buf, start, end);
    }
    if (good)
        result = result_of(&scan);
    close_places(&places);
    close_scan(&scan);
    return result;
}

/* Where the size of a member's content is, and how long its message may be. */
typedef struct {
    Py_ssize_t size_column;
    int64_t longest;
    uint8_t *contents;
} Members;

/* Takes the members of a batch. Returns false if it has another form. */
static bool take_batch(Scan *scan, const Members *members, Py_ssize_t row, Py_ssize_t count, const uint8_t *data,
                       int64_t start, int64_t end) {
    for (; count; count--, row++) {
        if (end - start < LENGTH_BYTES)
            return false;
        int64_t length = read_u32(data + start), size;
        start += LENGTH_BYTES;
        if (length > end - start || length > members->longest || !take_message(scan, row, data, start, start + length))
            return false;
        start += length;
        memcpy(members->contents + row * (Py_ssize_t)sizeof start, &start, sizeof start);
        memcpy(&size, number_place(scan, members->size_column, row), sizeof size);
        if (size > end - start)
            return false;
        start += size;
    }
    return true;
}

/* Takes batches up to one of another form. Returns how many, or -1 with an exception set. */
static Py_ssize_t take_batches(Scan *scan, const Members *members, const Places *places, const Py_buffer *counts) {
    Py_ssize_t row = 0;
    for (Py_ssize_t batch = 0; batch < places->count; batch++) {
        int64_t start, end;
        Py_ssize_t count = (Py_ssize_t)number_at(counts, batch), pair_count = scan->pair_count;
        if (!place_of(places, batch, &start, &end))
            return -1;
        if (!take_batch(scan, members, row, count, places->data.buf, start, end)) {
            for (Py_ssize_t at = row; at < row + count; at++)
                not_whole(scan, at, pair_count);
            memset(members->contents + row * (Py_ssize_t)sizeof start, 0, (size_t)count * sizeof start);
            return batch;
        }
        row += count;
    }
    return places->count;
}

static bool find_size_column(const Scan *scan, PyObject *number, Py_ssize_t *column) {
    int64_t size_field;
    if (!to_int64(number, &size_field))
        return false;
    for (Py_ssize_t at = 0; at < scan->field_count; at++) {
        *column = scan->fields[at].column;
        if (scan->fields[at].number == size_field && scan->fields[at].kind == NUMBER)
            return true;
    }
    PyErr_SetString(PyExc_ValueError, "the field is none of the table, or has no number");
    return false;
}

/* How many members there are; -1 with an exception set. */
static Py_ssize_t total_of(const Places *places, const Py_buffer *counts) {
    Py_ssize_t total = 0;
    if (counts->len != places->starts.len) {
        PyErr_SetString(PyExc_ValueError, "there are as many counts as batches");
        return -1;
    }
    for (Py_ssize_t batch = 0; batch < places->count; batch++) {
        int64_t count = number_at(counts, batch);
        if (count < 0) {
            PyErr_SetString(PyExc_ValueError, "a batch has some members");
            return -1;
        }
        if (count > PY_SSIZE_T_MAX / 2 - total) {
            PyErr_NoMemory();
            return -1;
        }
        total += (Py_ssize_t)count;
    }
    return total;
}

PyObject *scan_members(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "scan_members", {"data", "starts", "ends", "counts", "table", "size_field", "longest"}, 7, 7};
    PyObject *bound[7], *contents = NULL, *result = NULL;
    Places places;
    Py_buffer counts;
    Scan scan = {0};
    Members members = {0};
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_table(&scan, bound[4]) ||
        !find_size_column(&scan, bound[5], &members.size_column) || !to_int64(bound[6], &members.longest) ||
        !open_places(&places, bound))
        return NULL;
    if (open_column(&counts, bound[3])) {
        Py_ssize_t total = total_of(&places, &counts), batches = -1;
        if (total >= 0 && open_rows(&scan, total) &&
            (contents = zeros(total, sizeof(int64_t), &members.contents)) != NULL)
            batches = take_batches(&scan, &members, &places, &counts);
        PyObject *columns = batches < 0 ? NULL : result_of(&scan);
        if (columns != NULL)
            result = Py_BuildValue("(nON)", batches, contents, columns);
        PyBuffer_Release(&counts);
    }
    Py_XDECREF(contents);
    close_places(&places);
    close_scan(&scan);
    return result;
}
