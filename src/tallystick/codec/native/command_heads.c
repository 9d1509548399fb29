/* JSON headers of commands: twin of codec/command_heads.py. Texts are escaped as msgspec does it. What it does not
   expect, the reference encodes or refuses. */

#include "codec.h"

#define LENGTHS_BYTES 8
#define LONGEST_ESCAPE 6          /* of one byte */
#define FIXED_BYTES 256           /* no header has more but for its texts: names, numbers, punctuation */
#define USUAL_BYTES 4096          /* on the stack */
#define MOST_TEXT_BYTES (1 << 28) /* more is the reference's */

enum { CODE, FIELDS, FLAG, LANGUAGE, OPAQUE, REMARK, VERSION, BEHIND, ARGUMENT_COUNT };

static char *put_raw(char *to, const char *text, Py_ssize_t count) {
    memcpy(to, text, (size_t)count);
    return to + count;
}

#define PUT(to, literal) put_raw(to, literal, (Py_ssize_t)sizeof(literal) - 1)

static char *put_number(char *to, int64_t number) {
    char digits[20];
    int count = 0;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    if (number < 0)
        *to++ = '-';
    do
        digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (count)
        *to++ = digits[--count];
    return to;
}

static char *put_escape(char *to, unsigned char byte) {
    static const char SHORT[] = "btnvfr", HEX[] = "0123456789abcdef"; /* from 8 on; there is none for 11 */
    *to++ = '\\';
    if (byte == '"' || byte == '\\') {
        *to++ = (char)byte;
    } else if (byte >= 8 && byte <= 13 && byte != 11) {
        *to++ = SHORT[byte - 8];
    } else {
        to = PUT(to, "u00");
        *to++ = HEX[byte >> 4];
        *to++ = HEX[byte & 15];
    }
    return to;
}

static bool is_escaped(unsigned char byte) { return (byte < 32) | (byte == '"') | (byte == '\\'); }

static bool has_escapes(const char *text, Py_ssize_t count) {
    bool any = false;
    for (Py_ssize_t at = 0; at < count; at++) /* to the end, so that it is done many at a time */
        any |= is_escaped((unsigned char)text[at]);
    return any;
}

/* A text whose UTF-8 was there when it was added. */
static char *put_text(char *to, PyObject *text) {
    Py_ssize_t count;
    const char *at = PyUnicode_AsUTF8AndSize(text, &count), *end = at + count;
    *to++ = '"';
    if (!has_escapes(at, count))
        to = put_raw(to, at, count);
    else
        for (; at < end; at++)
            if (is_escaped((unsigned char)*at))
                to = put_escape(to, (unsigned char)*at);
            else
                *to++ = *at;
    *to++ = '"';
    return to;
}

/* Adds the most bytes that a text may take. Returns false if it is none, or far too long. */
static bool add_text(PyObject *text, Py_ssize_t *most) {
    Py_ssize_t count;
    if (!PyUnicode_Check(text) || PyUnicode_AsUTF8AndSize(text, &count) == NULL || count > MOST_TEXT_BYTES - *most)
        return false;
    *most += count + 6; /* quotes, a colon, a comma */
    return *most <= MOST_TEXT_BYTES;
}

static bool add_fields(PyObject *fields, Py_ssize_t *most) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    if (!PyDict_Check(fields))
        return false;
    while (PyDict_Next(fields, &at, &name, &value))
        if (!add_text(name, most) || !add_text(value, most))
            return false;
    return true;
}

static char *put_fields(char *to, PyObject *fields) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    char before = '{';
    while (PyDict_Next(fields, &at, &name, &value)) {
        *to++ = before;
        to = put_text(to, name);
        *to++ = ':';
        to = put_text(to, value);
        before = ',';
    }
    if (before == '{')
        *to++ = '{';
    *to++ = '}';
    return to;
}

static bool read_number(PyObject *object, int64_t *number) {
    return PyLong_Check(object) && !PyBool_Check(object) && to_int64(object, number);
}

static PyObject *encode(char *start, PyObject *const *bound, const int64_t *numbers) {
    char *to = PUT(start + LENGTHS_BYTES, "{\"code\":");
    to = put_number(to, numbers[CODE]);
    if (bound[FIELDS] != Py_None)
        to = put_fields(PUT(to, ",\"extFields\":"), bound[FIELDS]);
    to = put_number(PUT(to, ",\"flag\":"), numbers[FLAG]);
    to = put_text(PUT(to, ",\"language\":"), bound[LANGUAGE]);
    to = put_number(PUT(to, ",\"opaque\":"), numbers[OPAQUE]);
    if (bound[REMARK] != Py_None)
        to = put_text(PUT(to, ",\"remark\":"), bound[REMARK]);
    to = put_number(PUT(to, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":"), numbers[VERSION]);
    *to++ = '}';
    Py_ssize_t header = to - start - LENGTHS_BYTES;
    write_u32((uint8_t *)start, (uint32_t)(4 + header + numbers[BEHIND]));
    write_u32((uint8_t *)start + 4, (uint32_t)header);
    return PyBytes_FromStringAndSize(start, to - start);
}

PyObject *encode_head(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "encode_head", {"code", "fields", "flag", "language", "opaque", "remark", "version", "behind"}, 8, 8};
    PyObject *bound[ARGUMENT_COUNT];
    int64_t numbers[ARGUMENT_COUNT];
    Py_ssize_t texts = 0;
    char usual[USUAL_BYTES], *start = usual;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (!read_number(bound[CODE], &numbers[CODE]) || !read_number(bound[FLAG], &numbers[FLAG]) ||
        !read_number(bound[OPAQUE], &numbers[OPAQUE]) || !read_number(bound[VERSION], &numbers[VERSION]) ||
        !read_number(bound[BEHIND], &numbers[BEHIND]) || numbers[BEHIND] < 0 || numbers[BEHIND] > INT32_MAX ||
        !add_text(bound[LANGUAGE], &texts) || (bound[REMARK] != Py_None && !add_text(bound[REMARK], &texts)) ||
        (bound[FIELDS] != Py_None && !add_fields(bound[FIELDS], &texts))) {
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    size_t most = LENGTHS_BYTES + FIXED_BYTES + LONGEST_ESCAPE * (size_t)texts;
    if (most > sizeof usual && (start = PyMem_Malloc(most)) == NULL)
        return PyErr_NoMemory();
    PyObject *head = encode(start, bound, numbers);
    if (start != usual)
        PyMem_Free(start);
    return head;
}
