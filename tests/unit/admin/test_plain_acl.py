from __future__ import annotations

import pytest

from tallystick.admin.plain_acl import read_plain_acl
from tallystick.errors import UsageError
from tallystick.rocketmq.wire.access import EntryInfo, PolicyInfo, UserInfo

# As the original's distribution has it.
FILE = """\
# licence
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.*.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  groupPerms:
  # the group should convert to retry topic
  - groupB=SUB

- accessKey: rocketmq2
  secretKey: "1234 # 5678"
  whiteRemoteAddress: 192.168.1.7
  # if it is admin, it could access all resources
  admin: true
"""


def test_the_originals_example_becomes_users_and_policies() -> None:
    acl = read_plain_acl(FILE.replace(" # 5", "-5"))
    assert acl.white_addresses == ("10.10.103.0/24", "192.168.0.0/16", "192.168.1.7")
    first, second = acl.users
    assert second.user == UserInfo("rocketmq2", "1234-5678", "Super") and second.policies == ()
    assert first.user == UserInfo("RocketMQ", "12345678", "Normal")
    assert first.policies == (
        PolicyInfo(
            "Custom",
            (
                EntryInfo("Topic:topicA", ("All",), None, "Deny"),
                EntryInfo("Topic:topicB", ("Pub", "Sub", "Get"), None, "Allow"),
                EntryInfo("Group:groupB", ("Sub", "Get"), None, "Allow"),
            ),
        ),
        PolicyInfo(
            "Default",
            (
                EntryInfo("Topic:*", ("All",), None, "Deny"),
                EntryInfo("Group:*", ("Sub", "Get"), None, "Allow"),
            ),
        ),
    )


@pytest.mark.parametrize(
    "change",
    [
        ("admin: false", "admin: perhaps"),
        ("topicA=DENY", "topicA=DENIED"),
        ("  - topicA=DENY", "  - topicA"),
        ("  defaultTopicPerm: DENY", "  defaultTopicPermm: DENY"),
        ("  defaultTopicPerm: DENY", "  defaultTopicPerm: &a DENY"),
        ("topicPerms:", "topicPerms: [topicA=DENY]"),
        ("secretKey: 12345678", "secretKey:"),
        ("accessKey: rocketmq2", "accessKey: RocketMQ"),
        ("- 10.10.103.*", "- 10.10.{1,2}.*"),
        ("- 10.10.103.*", "- *"),
        ("globalWhiteRemoteAddresses:", "globalWhite:"),
        ("  admin: false", "  admin: false\n  admin: true"),
    ],
)
def test_n2_what_is_not_understood_is_refused_and_shows_no_secret(change: tuple[str, str]) -> None:
    assert change[0] in FILE
    with pytest.raises(UsageError) as refused:
        read_plain_acl(FILE.replace(*change))
    assert "12345678" not in str(refused.value)
