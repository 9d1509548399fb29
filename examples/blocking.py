"""The same client without async, for scripts and notebooks. Prints::

3 entries, 15 bytes
b'gamma'
"""

import tallystick.sync
from tallystick.admin.dev import find_uri

with tallystick.sync.connect(find_uri()) as bk:
    writer = bk.create_ledger(digest="hmac", password=b"secret", custom_metadata={"made-by": b"an example"})
    writer.append_batch([b"alpha", b"beta!", b"gamma"])
    writer.close()

    reader = bk.open_ledger(writer.id, password=b"secret")
    print(f"{reader.last_entry + 1} entries, {reader.length} bytes")
    print([entry.data for entry in reader.read(0, reader.last_entry)][-1])
