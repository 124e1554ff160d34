"""The few remoting requests the runner makes itself. Frame: length 4, header length 4 (high byte 0 = JSON), header, body."""

import json
import socket
import struct

GET_ROUTEINFO_BY_TOPIC = 105


def request(address, code, fields=None, body=b"", timeout=5.0):
    """One request, its answer as (code, remark, fields, body). Raises OSError when there is no answer."""
    host, port = address.rsplit(":", 1)
    header = json.dumps(
        {"code": code, "language": "JAVA", "version": 513, "opaque": 1, "flag": 0, "extFields": fields or {},
         "serializeTypeCurrentRPC": "JSON"}
    ).encode()  # fmt: skip
    with socket.create_connection((host, int(port)), timeout=timeout) as s:
        s.settimeout(timeout)
        s.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        size = struct.unpack(">i", exactly(s, 4))[0]
        frame = exactly(s, size)
    header_size = struct.unpack(">i", frame[:4])[0] & 0xFFFFFF
    answer = json.loads(frame[4 : 4 + header_size])
    return answer["code"], answer.get("remark"), answer.get("extFields") or {}, frame[4 + header_size :]


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
