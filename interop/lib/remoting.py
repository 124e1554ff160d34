"""The few remoting requests the runners make themselves.

Frame: length 4, header length 4 (high byte 0 = JSON), header, body. One request at a time on a connection.
"""

import json
import socket
import struct
import time

SEND_MESSAGE = 10
UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTEINFO_BY_TOPIC = 105
SEND_BATCH_MESSAGE = 320


class Connection:
    """A connection for requests one after the other."""

    def __init__(self, address, timeout=5.0):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.settimeout(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def request(self, code, fields=None, body=b""):
        """The answer as (code, remark, fields, body). Raises OSError when there is none."""
        header = json.dumps(
            {"code": code, "language": "JAVA", "version": 513, "opaque": 1, "flag": 0, "extFields": fields or {},
             "serializeTypeCurrentRPC": "JSON"}
        ).encode()  # fmt: skip
        self.socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        size = struct.unpack(">i", exactly(self.socket, 4))[0]
        frame = exactly(self.socket, size)
        header_size = struct.unpack(">i", frame[:4])[0] & 0xFFFFFF
        answer = json.loads(frame[4 : 4 + header_size])
        return answer["code"], answer.get("remark"), answer.get("extFields") or {}, frame[4 + header_size :]

    def send(self, topic, queue, body, batch=False):
        """Sends one message, or a batch body; returns (response code, remark)."""
        fields = {
            "producerGroup": "bench", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": str(queue), "sysFlag": "0", "bornTimestamp": str(int(time.time() * 1000)), "flag": "0",
            "properties": "", "reconsumeTimes": "0", "unitMode": "false", "batch": "true" if batch else "false",
        }  # fmt: skip
        return self.request(SEND_BATCH_MESSAGE if batch else SEND_MESSAGE, fields, body)[:2]

    def create_topic(self, topic, queues):
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        return self.request(UPDATE_AND_CREATE_TOPIC, fields)[:2]


def request(address, code, fields=None, body=b"", timeout=5.0):
    """One request on a connection of its own."""
    with Connection(address, timeout) as c:
        return c.request(code, fields, body)


def batch_body(bodies):
    """The body of a batch: for each message size 4, magic 4, crc 4, flag 4, body length 4, body, properties length 2."""
    return b"".join(struct.pack(">iiiii", 22 + len(b), 0, 0, 0, len(b)) + b + b"\0\0" for b in bodies)


def exactly(s, size):
    data = b""
    while len(data) < size:
        more = s.recv(min(size - len(data), 1 << 20))
        if not more:
            raise OSError("the connection was closed before the answer was whole")
        data += more
    return data


def has_route(namesrv, topic):
    """True when the name server knows a broker for the topic."""
    try:
        return request(namesrv, GET_ROUTEINFO_BY_TOPIC, {"topic": topic})[0] == 0
    except OSError:
        return False
