/* Sends and pulls with their typed headers: twin of codec/requests.py. What it does not expect, the reference reads. */

#include "codec.h"

#define HEAD_BYTES 8
#define BINARY_HEAD_BYTES 21
#define LONGEST_TEXT 4096 /* one with escapes that has more bytes is the reference's */
#define MOST_BYTES (1 << 20)
#define FIELD_COUNT 14
#define RESPONSE 1

enum { MAKE, HEADERS, LANGUAGES, NUMBERED_LANGUAGES, JSON_FORM, BINARY_FORM, FORM_COUNT };

typedef enum { TEXT, INT, LONG, BOOL } Type;

typedef struct {
    const char *name;
    Py_ssize_t count;
    Type type;
} Field;

#define FIELD(name, type) {name, (Py_ssize_t)sizeof(name) - 1, type}

typedef struct {
    const Field *fields; /* FIELD_COUNT of them, in the order of the type's arguments */
    int mandatory;       /* the first ones */
} Form;

static const Field SEND[] = {FIELD("producerGroup", TEXT), FIELD("topic", TEXT),          FIELD("defaultTopic", TEXT),
                             FIELD("defaultTopicQueueNums", INT), FIELD("queueId", INT),  FIELD("sysFlag", INT),
                             FIELD("bornTimestamp", LONG), FIELD("flag", INT),            FIELD("properties", TEXT),
                             FIELD("reconsumeTimes", INT), FIELD("unitMode", BOOL),
                             FIELD("maxReconsumeTimes", INT), FIELD("batch", BOOL),       FIELD("bname", TEXT)};
static const Field LETTERS[] = {FIELD("a", TEXT), FIELD("b", TEXT), FIELD("c", TEXT), FIELD("d", INT), FIELD("e", INT),
                                FIELD("f", INT),  FIELD("g", LONG), FIELD("h", INT),  FIELD("i", TEXT), FIELD("j", INT),
                                FIELD("k", BOOL), FIELD("l", INT),  FIELD("m", BOOL), FIELD("n", TEXT)};
static const Field PULL[] = {FIELD("consumerGroup", TEXT), FIELD("topic", TEXT),     FIELD("queueId", INT),
                             FIELD("queueOffset", LONG),   FIELD("maxMsgNums", INT), FIELD("sysFlag", INT),
                             FIELD("commitOffset", LONG),  FIELD("suspendTimeoutMillis", LONG),
                             FIELD("subVersion", LONG),    FIELD("subscription", TEXT),
                             FIELD("expressionType", TEXT), FIELD("maxMsgBytes", INT), FIELD("bname", TEXT),
                             FIELD("tallyMark", TEXT)};

static const Form *form_of(int64_t code) {
    static const Form FORMS[] = {{SEND, 8}, {LETTERS, 8}, {PULL, 9}};
    return code == 10 ? &FORMS[0] : code == 310 || code == 320 ? &FORMS[1] : code == 11 || code == 361 ? &FORMS[2] : NULL;
}

typedef struct {
    const char *start;
    Py_ssize_t count;
} Text;

/* A request in the making. */
typedef struct {
    int64_t code, opaque, flag, version;
    const Form *form;
    PyObject *language; /* borrowed */
    PyObject *values[FIELD_COUNT];
} Request;

/* A whole number of so many digits at most, as it is written without need of more. */
static bool read_digits(Cursor *cursor, int most, int64_t *number) {
    bool negative = SKIP(cursor, "-");
    const uint8_t *start = cursor->at;
    int64_t value = 0;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9' && cursor->at - start < most)
        value = value * 10 + (*cursor->at++ - '0');
    if (cursor->at == start || (*start == '0' && (negative || cursor->at - start > 1)))
        return false;
    *number = negative ? -value : value;
    return cursor->at == cursor->end || *cursor->at < '0' || *cursor->at > '9';
}

static int hex_digit(uint8_t byte) {
    return byte >= '0' && byte <= '9' ? byte - '0' : (byte | 32) >= 'a' && (byte | 32) <= 'f' ? (byte | 32) - 'a' + 10 : -1;
}

/* One escape behind its backslash. Returns the byte that it means, -1 if the reference is to read it. */
static int read_escape(Cursor *cursor) {
    static const char NAMES[] = "\"\\/bfnrt", MEANINGS[] = "\"\\/\b\f\n\r\t";
    if (cursor->at == cursor->end)
        return -1;
    uint8_t byte = *cursor->at++;
    if (byte != 'u') {
        const char *place = byte ? strchr(NAMES, byte) : NULL;
        return place == NULL ? -1 : MEANINGS[place - NAMES];
    }
    if (!SKIP(cursor, "00") || cursor->end - cursor->at < 2)
        return -1;
    int high = hex_digit(cursor->at[0]), low = hex_digit(cursor->at[1]);
    cursor->at += 2;
    return high < 0 || high > 7 || low < 0 ? -1 : high << 4 | low;
}

/* A string behind its first quote; unescaped has its content if it has escapes. */
static bool read_string(Cursor *cursor, Text *text, char *unescaped) {
    const uint8_t *start = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != '"' && *cursor->at != '\\' && *cursor->at >= 32)
        cursor->at++;
    text->start = (const char *)start;
    text->count = cursor->at - start;
    if (SKIP(cursor, "\""))
        return true;
    if (text->count >= LONGEST_TEXT)
        return false;
    memcpy(unescaped, start, (size_t)text->count);
    text->start = unescaped;
    while (cursor->at < cursor->end && *cursor->at >= 32 && text->count < LONGEST_TEXT) {
        int byte = *cursor->at++;
        if (byte == '"')
            return true;
        if (byte == '\\' && (byte = read_escape(cursor)) < 0)
            return false;
        unescaped[text->count++] = (char)byte;
    }
    return false;
}

/* Returns NULL for a value that the reference is to read, perhaps with an exception set. */
static PyObject *value_of(Type type, const Text *text) {
    int64_t number;
    Cursor cursor = {(const uint8_t *)text->start, (const uint8_t *)text->start + text->count};
    if (type == TEXT)
        return PyUnicode_DecodeUTF8(text->start, text->count, NULL);
    if (type == BOOL) {
        bool is_true = text->count == 4 && !memcmp(text->start, "true", 4);
        return is_true || (text->count == 5 && !memcmp(text->start, "false", 5)) ? PyBool_FromLong(is_true) : NULL;
    }
    if (!read_digits(&cursor, type == INT ? 9 : 18, &number) || cursor.at != cursor.end)
        return NULL;
    return PyLong_FromLongLong(number);
}

/* Returns false for a field that the reference is to read. ``next`` is where its name is looked for first. */
static bool put_field(Request *request, int *next, const Text *name, const Text *value) {
    for (int tried = 0; tried < FIELD_COUNT; tried++) {
        int at = (*next + tried) % FIELD_COUNT;
        const Field *field = &request->form->fields[at];
        if (field->count == name->count && !memcmp(field->name, name->start, (size_t)name->count)) {
            *next = at + 1;
            return request->values[at] == NULL && (request->values[at] = value_of(field->type, value)) != NULL;
        }
    }
    return false;
}

static bool read_fields(Cursor *cursor, Request *request) {
    char unescaped[LONGEST_TEXT];
    int next = 0;
    if (!SKIP(cursor, "{"))
        return false;
    do {
        Text name, value;
        const uint8_t *start = cursor->at + 1;
        if (!SKIP(cursor, "\"") || !read_string(cursor, &name, unescaped) || name.start != (const char *)start ||
            !SKIP(cursor, ":\"") || !read_string(cursor, &value, unescaped) ||
            !put_field(request, &next, &name, &value))
            return false;
    } while (SKIP(cursor, ","));
    return SKIP(cursor, "}");
}

/* The language's own spelling has no escapes, and nothing but a name of it is in the table. */
static bool read_language(Cursor *cursor, Request *request, PyObject *languages) {
    const uint8_t *start = cursor->at;
    while (cursor->at < cursor->end && ((*cursor->at >= 'A' && *cursor->at <= 'Z') || *cursor->at == '_'))
        cursor->at++;
    PyObject *name = PyUnicode_FromStringAndSize((const char *)start, cursor->at - start);
    request->language = name == NULL ? NULL : PyDict_GetItemWithError(languages, name);
    Py_XDECREF(name);
    return request->language != NULL && SKIP(cursor, "\"");
}

/* Returns false for a header that the reference is to read. Each member comes once. */
static bool read_json(Cursor *cursor, Request *request, PyObject *languages) {
    enum { FIELDS = 1, FLAG = 2, LANGUAGE = 4, OPAQUE = 8, VERSION = 16, KIND = 32, ALL = 63 };
    int members = 0, member;
    do {
        bool good;
        if (SKIP(cursor, "\"extFields\":"))
            member = FIELDS, good = read_fields(cursor, request);
        else if (SKIP(cursor, "\"flag\":"))
            member = FLAG, good = read_digits(cursor, 9, &request->flag);
        else if (SKIP(cursor, "\"language\":\""))
            member = LANGUAGE, good = read_language(cursor, request, languages);
        else if (SKIP(cursor, "\"opaque\":"))
            member = OPAQUE, good = read_digits(cursor, 9, &request->opaque);
        else if (SKIP(cursor, "\"version\":"))
            member = VERSION, good = read_digits(cursor, 9, &request->version);
        else
            member = KIND, good = SKIP(cursor, "\"serializeTypeCurrentRPC\":\"JSON\"");
        if (!good || members & member)
            return false;
        members |= member;
    } while (SKIP(cursor, ","));
    return members == ALL && SKIP(cursor, "}") && cursor->at == cursor->end;
}

static bool read_binary(Cursor *cursor, Request *request, PyObject *languages) {
    const uint8_t *head = cursor->at;
    int next = 0;
    request->language = head[2] < PyTuple_Size(languages) ? PyTuple_GetItem(languages, head[2]) : NULL;
    request->version = (int16_t)read_u16(head + 3);
    request->opaque = read_i32(head + 5);
    request->flag = read_i32(head + 9);
    cursor->at += BINARY_HEAD_BYTES;
    if (request->language == NULL || read_u32(head + 13) || read_u32(head + 17) != cursor->end - cursor->at)
        return false;
    while (cursor->at < cursor->end) {
        Text name, value;
        if (cursor->end - cursor->at < 6)
            return false;
        name.count = read_u16(cursor->at);
        name.start = (const char *)cursor->at + 2;
        if (name.count > cursor->end - cursor->at - 6)
            return false;
        cursor->at += 2 + name.count;
        value.count = read_i32(cursor->at);
        value.start = (const char *)cursor->at + 4;
        cursor->at += 4;
        if (value.count <= 0 || value.count > cursor->end - cursor->at || !put_field(request, &next, &name, &value))
            return false;
        cursor->at += value.count;
    }
    return true;
}

/* The code of a header of either kind; 0 if it is none of those that are read here. */
static int64_t code_of(int kind, Cursor *cursor) {
    int64_t code = 0;
    if (kind == 0 && SKIP(cursor, "{\"code\":") && read_digits(cursor, 3, &code) && SKIP(cursor, ",") &&
        (code > 99 || (cursor->at < cursor->end && *cursor->at == '"')))
        return code;
    return kind == 1 && cursor->end - cursor->at >= BINARY_HEAD_BYTES ? (int16_t)read_u16(cursor->at) : 0;
}

static PyObject *header_of(Request *request, PyObject *type) {
    PyObject *arguments = PyTuple_New(FIELD_COUNT), *header = NULL;
    for (int at = 0; arguments != NULL && at < FIELD_COUNT; at++) {
        PyObject *value = request->values[at] == NULL ? Py_None : request->values[at];
        Py_INCREF(value);
        PyTuple_SetItem(arguments, at, value);
    }
    if (arguments != NULL)
        header = PyObject_CallObject(type, arguments);
    Py_XDECREF(arguments);
    return header;
}

static PyObject *made_of(Request *request, PyObject *forms, PyObject *type, int kind, const Text *body) {
    PyObject *header = header_of(request, type), *arguments = NULL, *made = NULL;
    if (header != NULL)
        arguments = Py_BuildValue("(LLLONy#()OLO)", request->code, request->opaque, request->flag, Py_None, header,
                                  body->start, body->count, request->language, request->version,
                                  PyTuple_GetItem(forms, kind == 0 ? JSON_FORM : BINARY_FORM));
    if (arguments != NULL)
        made = PyObject_CallObject(PyTuple_GetItem(forms, MAKE), arguments);
    Py_XDECREF(arguments);
    return made;
}

typedef enum { MADE, UNUSUAL, OTHER, FAILED } Outcome;

/* Makes the request of a frame, whose body begins and ends there. */
static Outcome read_request(PyObject *forms, int kind, const uint8_t *header, const Text *body, PyObject **made) {
    Request request = {0};
    Cursor cursor = {header, (const uint8_t *)body->start};
    PyObject *type = NULL, *number;
    request.code = code_of(kind, &cursor);
    if ((request.form = form_of(request.code)) == NULL)
        return OTHER;
    if ((number = PyLong_FromLongLong(request.code)) == NULL)
        return FAILED;
    type = PyDict_GetItemWithError(PyTuple_GetItem(forms, HEADERS), number);
    Py_DECREF(number);
    if (type == NULL)
        return PyErr_Occurred() ? FAILED : OTHER;
    bool good = kind == 0 ? read_json(&cursor, &request, PyTuple_GetItem(forms, LANGUAGES))
                          : read_binary(&cursor, &request, PyTuple_GetItem(forms, NUMBERED_LANGUAGES));
    for (int at = 0; good && at < request.form->mandatory; at++)
        good = request.values[at] != NULL;
    good = good && !(request.flag & RESPONSE);
    if (good)
        *made = made_of(&request, forms, type, kind, body);
    for (int at = 0; at < FIELD_COUNT; at++)
        Py_XDECREF(request.values[at]);
    if (!good)
        PyErr_Clear();
    return !good ? UNUSUAL : *made == NULL ? FAILED : MADE;
}

/* The reference reads one frame. */
static Outcome read_unusual(PyObject *module, const Signature *signature, PyObject *const *bound, Py_ssize_t start,
                            PyObject **made) {
    PyObject *from = PyLong_FromSsize_t(start), *one = PyLong_FromLong(1), *read = NULL;
    if (from != NULL && one != NULL) {
        PyObject *arguments[] = {bound[0], from, bound[2], bound[3], one, bound[5]};
        read = call_reference(module, signature, arguments);
    }
    Py_XDECREF(from);
    Py_XDECREF(one);
    PyObject *requests = read == NULL ? NULL : PyTuple_GetItem(read, 0);
    Outcome outcome = requests == NULL ? FAILED : OTHER;
    if (requests != NULL && PyList_Size(requests) == 1) {
        *made = PyList_GetItem(requests, 0);
        Py_INCREF(*made);
        outcome = MADE;
    }
    Py_XDECREF(read);
    return outcome;
}

PyObject *scan_requests(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_requests", {"buffer", "start", "end", "until", "most", "forms"}, 6, 6};
    PyObject *bound[6], *requests = NULL;
    Region region;
    Py_ssize_t until, most;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (!PyTuple_Check(bound[5]) || PyTuple_Size(bound[5]) <= FORM_COUNT)
        return call_reference(module, &SIGNATURE, bound);
    if (((until = PyNumber_AsSsize_t(bound[3], NULL)) == -1 && PyErr_Occurred()) ||
        ((most = PyNumber_AsSsize_t(bound[4], NULL)) == -1 && PyErr_Occurred()) ||
        !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    Py_ssize_t position = region.start;
    Outcome outcome = (requests = PyList_New(0)) == NULL ? FAILED : MADE;
    while (outcome == MADE && position < until && region.end - position >= HEAD_BYTES && PyList_Size(requests) < most) {
        const uint8_t *frame = region.bytes + position;
        int64_t size = read_u32(frame), header_size = read_u32(frame + 4) & 0xFFFFFF;
        if (size > MOST_BYTES || size > region.end - position - 4 || header_size > size - 4)
            break;
        PyObject *made = NULL;
        Text body = {(const char *)frame + HEAD_BYTES + header_size, (Py_ssize_t)(size - 4 - header_size)};
        outcome = read_request(bound[5], frame[4], frame + HEAD_BYTES, &body, &made);
        if (outcome == UNUSUAL)
            outcome = read_unusual(module, &SIGNATURE, bound, position, &made);
        if (outcome == MADE && !append(requests, made))
            outcome = FAILED;
        if (outcome == MADE)
            position += (Py_ssize_t)size + 4;
    }
    close_region(&region);
    if (outcome == FAILED)
        Py_CLEAR(requests);
    return with_position(requests, position);
}
