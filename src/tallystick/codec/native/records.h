/* A record of the CommitLog in a buffer: codec/records.py has the layout. */

#ifndef TALLYSTICK_RECORDS_H
#define TALLYSTICK_RECORDS_H

#include "codec.h"

#define V1 0xDAA320A7u
#define V2 0xDAA320ABu
#define LONGEST_V1_TOPIC 127
#define SMALLEST 91
#define FIXED_BYTES 74 /* without hosts, topic field, body and properties */
#define CRC_MASK 0x7FFFFFFFu
#define BORN_V6 16
#define STORE_V6 32
#define V4_HOST 8
#define V6_EXTRA 12
#define CRC_AT 8
#define QUEUE_ID_AT 12
#define FLAG_AT 16
#define QUEUE_OFFSET_AT 20
#define PHYSICAL_AT 28
#define SYS_FLAG_AT 36
#define BORN_AT 40
#define BORN_HOST_AT 48
#define STORED_AT 56    /* with an IPv4 host before it */
#define BODY_SIZE_AT 84 /* with two of them */

/* A whole record, by what is read of it; all places are in the buffer. */
typedef struct {
    Py_ssize_t position;
    Py_ssize_t size;
    Py_ssize_t stored_at;
    Py_ssize_t body_at;
    Py_ssize_t body_end;
    Py_ssize_t topic_at;
    Py_ssize_t topic_end;
} Record;

/* Reads the record at a position, wherever it was written. Returns false if no whole one is there. */
bool read_record(const uint8_t *bytes, Py_ssize_t limit, Py_ssize_t position, Record *record);

/* The same of one that was written to this place of the log: base is the physical offset of the buffer. */
bool read_placed(const uint8_t *bytes, Py_ssize_t limit, Py_ssize_t position, int64_t base, Record *record);

bool has_its_crc(const uint8_t *bytes, const Record *record);

/* The bytes from start to stop of a buffer; the last ones again if they are the same, which most columns are. */
PyObject *bytes_between(const uint8_t *bytes, Py_ssize_t start, Py_ssize_t stop, PyObject **last);

#endif
