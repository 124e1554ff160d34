"""What each mqadmin command must print, and do. One fixture serves all: a topic of 4 queues with 12 messages,
a producer that stays connected, and a consumer group with one live member that has read everything.

Checks run in the order written; a check may use what an earlier one made only through the fixture.
"""

import re
import time
from pathlib import Path

from .servers import BROKER, CLUSTER

CHECKS = []


def check(name):
    def remember(function):
        CHECKS.append((name, function))
        return function

    return remember


class Fixture:
    def __init__(self, admin, server):
        self.admin = admin
        self.server = server
        prefix = f"adm{int(time.time()) % 100000}"
        self.topic, self.group, self.producer = f"{prefix}-topic", f"{prefix}-group", f"{prefix}-producer"
        self.spare, self.spare_group = f"{prefix}-spare", f"{prefix}-spare-group"
        self.sent = []
        out = admin.run("updateTopic", "-c", CLUSTER, "-t", self.topic, "-r", 4, "-w", 4)
        must(out, rf"create topic to {self.server.broker} success", rf"topicName={self.topic}", "perm=RW-")
        for i in range(12):
            words = self.admin.ask("send", self.topic, self.producer, f"tag{i % 2}", f"key{i} all", f"body-{i}",
                                   i % 4).split()  # fmt: skip
            if len(words) != 4:
                raise AssertionError(f"sending the fixture's messages: {' '.join(words)[:300]}")
            unique, offset_id, queue, offset = words
            self.sent.append((unique, offset_id, int(queue), int(offset)))
        self.admin.ask("consume", self.topic, self.group)
        eventually(lambda: must(self.admin.ask("consumed"), "^12$"), 60)

    def run(self, *words):
        return self.admin.run(*words)

    def expect(self, words, *patterns):
        must(self.run(*words), *patterns)

    def close(self):
        self.admin.ask("close")


def must(text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text, re.MULTILINE):
            refused = re.search(r"CODE: .*", text)
            came = refused.group(0) if refused else " ".join(text.split())
            raise AssertionError(f"expected /{pattern}/ in the output, came: {came[:400]}")


def must_not(text, *patterns):
    for pattern in patterns:
        if re.search(pattern, text, re.MULTILINE):
            raise AssertionError(f"/{pattern}/ must not be in the output: {' '.join(text.split())[:400]}")


def eventually(attempt, seconds):
    """Repeats until it raises nothing; the last complaint stands."""
    deadline = time.time() + seconds
    while True:
        try:
            return attempt()
        except AssertionError:
            if time.time() > deadline:
                raise
            time.sleep(0.3)


def run(admin, server, report, names):
    begin = time.time()
    try:
        fixture = Fixture(admin, server)
    except (AssertionError, RuntimeError, OSError) as e:
        for name in names:
            report.add("mqadmin", name, "FAIL", time.time() - begin, f"fixture: {e}")
        return
    for name, function in CHECKS:
        if name not in names:
            continue
        begin = time.time()
        try:
            function(fixture)
            report.add("mqadmin", name, "ok", time.time() - begin)
        except (AssertionError, RuntimeError, OSError) as e:
            report.add("mqadmin", name, "FAIL", time.time() - begin, str(e))
    fixture.close()


# ---- cluster and broker ------------------------------------------------------------------------------------


@check("clusterList")
def cluster_list(f):
    f.expect(["clusterList"], rf"^{CLUSTER}\s+{BROKER}\s+0\s+{f.server.broker}\s+V\d", "#InTPS")
    f.expect(["clusterList", "-m"], rf"^{CLUSTER}\s+{BROKER}\s+\d+", "#InTotalYest")


@check("brokerStatus")
def broker_status(f):
    out = f.run("brokerStatus", "-b", f.server.broker)
    must(out, r"^bootTimestamp\s*: \d{13}", r"^brokerVersionDesc\s*: V\d", r"^commitLogMaxOffset\s*: [1-9]",
         r"^commitLogMinOffset\s*: \d", r"^putMessageTimesTotal\s*: [1-9]", r"^msgPutTotalTodayNow\s*: [1-9]",
         r"^dispatchBehindBytes\s*: \d", r"^runtime\s*: \[ 0 days", r"^commitLogDiskRatio")  # fmt: skip
    f.expect(["brokerStatus", "-c", CLUSTER], rf"{f.server.broker}.*\s+bootTimestamp|bootTimestamp")


@check("getBrokerConfig")
def get_broker_config(f):
    f.expect(["getBrokerConfig", "-b", f.server.broker], rf"^brokerName\s+=\s+{BROKER}$",
             rf"^brokerClusterName\s+=\s+{CLUSTER}$", rf"^listenPort\s+=\s+{f.server.broker_port}$",
             r"^flushDiskType\s+=\s+ASYNC_FLUSH$", r"^enablePropertyFilter\s+=\s+true$",
             r"^mappedFileSizeCommitLog\s+=\s+67108864$", r"^storePathRootDir\s+=\s+/")  # fmt: skip


@check("updateBrokerConfig")
def update_broker_config(f):
    f.expect(["updateBrokerConfig", "-b", f.server.broker, "-k", "maxErrorRateOfBloomFilter", "-v", 21],
             "update broker config success")  # fmt: skip
    f.expect(["getBrokerConfig", "-b", f.server.broker], r"^maxErrorRateOfBloomFilter\s+=\s+21$")


@check("cleanExpiredCQ")
def clean_expired_cq(f):
    f.expect(["cleanExpiredCQ", "-b", f.server.broker], "success")


@check("cleanUnusedTopic")
def clean_unused_topic(f):
    f.expect(["cleanUnusedTopic", "-b", f.server.broker], "success")
    f.expect(["topicStatus", "-t", f.topic], rf"^{BROKER}\s+0\s+0\s+3")


@check("haStatus")
def ha_status(f):
    f.expect(["haStatus", "-b", f.server.broker], rf"#MasterAddr\s+{f.server.broker}", r"#SlaveNum\s+0")


# ---- topics ------------------------------------------------------------------------------------------------


@check("topicList")
def topic_list(f):
    f.expect(["topicList"], rf"^{f.topic}$", r"^TBW102$")
    f.expect(["topicList", "-c"], rf"^{CLUSTER}\s+{f.topic}\s+{f.group}\s*$")


@check("topicRoute")
def topic_route(f):
    f.expect(["topicRoute", "-t", f.topic], rf'"brokerName":\s*"{BROKER}"', r'"readQueueNums":\s*4',
             r'"writeQueueNums":\s*4', r'"perm":\s*6', f.server.broker)  # fmt: skip
    f.expect(["topicRoute", "-t", "no-such-topic"], "No topic route info in name server for the topic: no-such-topic")


@check("topicClusterList")
def topic_cluster_list(f):
    f.expect(["topicClusterList", "-t", f.topic], rf"^{CLUSTER}$")


@check("topicStatus")
def topic_status(f):
    out = f.run("topicStatus", "-t", f.topic)
    for queue in range(4):
        must(out, rf"^{BROKER}\s+{queue}\s+0\s+3\s+\d{{4}}-\d\d-\d\d")


@check("updateTopic")
def update_topic(f):
    f.expect(["updateTopic", "-b", f.server.broker, "-t", f.spare, "-r", 8, "-w", 8, "-p", 6],
             "success", "readQueueNums=8", "writeQueueNums=8")  # fmt: skip
    eventually(lambda: f.expect(["topicRoute", "-t", f.spare], r'"readQueueNums":\s*8'), 15)
    f.expect(["updateTopic", "-c", CLUSTER, "-t", f.spare, "-r", 2, "-w", 2], "success", "readQueueNums=2")
    eventually(lambda: f.expect(["topicRoute", "-t", f.spare], r'"readQueueNums":\s*2'), 15)


@check("updateTopicPerm")
def update_topic_perm(f):
    f.run("updateTopic", "-c", CLUSTER, "-t", f.spare, "-r", 2, "-w", 2)
    eventually(lambda: f.expect(["topicRoute", "-t", f.spare], r'"perm":\s*6'), 15)
    f.expect(["updateTopicPerm", "-b", f.server.broker, "-t", f.spare, "-p", 4], r"from 6 to 4 in .* success")
    eventually(lambda: f.expect(["topicRoute", "-t", f.spare], r'"perm":\s*4'), 15)
    f.expect(["updateTopicPerm", "-b", f.server.broker, "-t", f.spare, "-p", 6], r"from 4 to 6 in .* success")


@check("allocateMQ")
def allocate_mq(f):
    out = f.run("allocateMQ", "-t", f.topic, "-i", "10.0.0.1,10.0.0.2")
    must(out, "10.0.0.1", "10.0.0.2")
    if len(re.findall('"queueId"', out)) != 4:
        raise AssertionError(f"4 queues should be allocated: {out[:300]}")


@check("updateOrderConf")
def update_order_conf(f):
    f.expect(["updateOrderConf", "-t", f.topic, "-v", f"{BROKER}:4", "-m", "put"], "update orderConf success")
    f.expect(["updateOrderConf", "-t", f.topic, "-m", "get"], rf"orderConf=\[{BROKER}:4\]")
    f.expect(["updateOrderConf", "-t", f.topic, "-m", "delete"], "delete orderConf success")
    must_not(f.run("updateOrderConf", "-t", f.topic, "-m", "get"), rf"orderConf=\[{BROKER}:4\]")


@check("statsAll")
def stats_all(f):
    f.expect(["statsAll", "-t", f.topic], rf"^{f.topic}\s+{f.group}\s+0\s")


@check("deleteTopic")
def delete_topic(f):
    f.run("updateTopic", "-c", CLUSTER, "-t", f.spare, "-r", 2, "-w", 2)
    eventually(lambda: f.expect(["topicList"], rf"^{f.spare}$"), 15)
    f.expect(["deleteTopic", "-c", CLUSTER, "-t", f.spare], r"from cluster .* success", r"from NameServer success")
    f.expect(["topicRoute", "-t", f.spare], "No topic route info")
    must_not(f.run("topicList"), rf"^{f.spare}$")


# ---- groups and positions ----------------------------------------------------------------------------------


@check("updateSubGroup")
def update_sub_group(f):
    f.expect(["updateSubGroup", "-c", CLUSTER, "-g", f.spare_group, "-s", "true", "-d", "true", "-r", 3, "-q", 2],
             rf"create subscription group to {f.server.broker} success", "retryMaxTimes=3",
             "retryQueueNums=2")  # fmt: skip
    f.expect(["getConsumerConfig", "-g", f.spare_group], r"^retryMaxTimes\s+=\s+3$",
             r"^consumeBroadcastEnable\s+=\s+true$")  # fmt: skip


@check("deleteSubGroup")
def delete_sub_group(f):
    f.run("updateSubGroup", "-c", CLUSTER, "-g", f.spare_group)
    f.expect(["deleteSubGroup", "-b", f.server.broker, "-g", f.spare_group, "-r", "true"],
             rf"delete subscription group \[{f.spare_group}\] from broker .* success")  # fmt: skip
    must_not(f.run("getConsumerConfig", "-g", f.spare_group), r"^retryMaxTimes\s+=")


@check("consumerProgress")
def consumer_progress(f):
    def caught_up():
        out = f.run("consumerProgress", "-g", f.group)
        for queue in range(4):
            must(out, rf"^{f.topic}\s+{BROKER}\s+{queue}\s+3\s+3\s+0\s+0")
        must(out, r"^Consume TPS:", r"^Consume Diff Total: 0$")

    eventually(caught_up, 20)
    f.expect(["consumerProgress"], rf"^{f.group[:34]}\S*\s+1\s+V\d\S*\s+PUSH\s+CLUSTERING")


@check("consumerConnection")
def consumer_connection(f):
    f.expect(["consumerConnection", "-g", f.group], r"@fixture-consumer\s+127.0.0.1:\d+\s+JAVA\s+V5_5_0",
             rf"^{f.topic}\s+\*", rf"^%RETRY%{f.group}\s+\*", "ConsumeType: CONSUME_PASSIVELY",
             "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET")  # fmt: skip


@check("consumerStatus")
def consumer_status(f):
    f.expect(["consumerStatus", "-g", f.group], r"@fixture-consumer\s+V5_5_0")
    client = re.search(r"(\S+@fixture-consumer)", f.run("consumerConnection", "-g", f.group)).group(1)
    f.expect(["consumerStatus", "-g", f.group, "-i", client], "#Consumer Properties#", "#Consumer Subscription#",
             rf"^{f.topic}\s+{BROKER}\s+0\s", "PROP_NAMESERVER_ADDR")  # fmt: skip


@check("producerConnection")
def producer_connection(f):
    def connected():
        f.expect(["producerConnection", "-g", f.producer, "-t", f.topic],
                 r"0001\s+\S+@fixture-producer\s+127.0.0.1:\d+\s+JAVA\s+V5_5_0")  # fmt: skip

    eventually(connected, 40)  # a producer is known after its first heartbeat


@check("producer")
def producer(f):
    eventually(lambda: f.expect(["producer", "-b", f.server.broker], rf"producer group \({f.producer}\) instance"), 40)


@check("brokerConsumeStats")
def broker_consume_stats(f):
    eventually(lambda: f.expect(["brokerConsumeStats", "-b", f.server.broker],
                                rf"^{f.topic}\s+{f.group}\s+{BROKER}\s+0\s+3\s+3\s+0\s"), 20)  # fmt: skip


@check("setConsumeMode")
def set_consume_mode(f):
    f.run("updateSubGroup", "-c", CLUSTER, "-g", f.spare_group)
    f.expect(["setConsumeMode", "-b", f.server.broker, "-t", f.topic, "-g", f.spare_group, "-m", "PULL"],
             rf"set consume mode to {f.server.broker} success", r"consume mode\[PULL\]")  # fmt: skip


@check("resetOffsetByTime")
def reset_offset_by_time(f):
    """For a live group: the member is told, and everything comes a second time."""
    before = int(f.admin.ask("consumed"))
    f.expect(["resetOffsetByTime", "-g", f.group, "-t", f.topic, "-s", 0], "start reset consumer offset",
             rf"^{BROKER}\s+0\s+0\s*$", rf"^{BROKER}\s+3\s+0\s*$")  # fmt: skip

    def again():
        now = int(f.admin.ask("consumed"))
        if now < before + 12:
            raise AssertionError(f"after the reset to 0 the member received {now - before} of 12 messages again")

    eventually(again, 60)


@check("skipAccumulatedMessage")
def skip_accumulated_message(f):
    f.expect(["skipAccumulatedMessage", "-g", f.group, "-t", f.topic, "-f", "true"], rf"^{BROKER}\s+0\s+\d+\s*$")


@check("cloneGroupOffset")
def clone_group_offset(f):
    f.run("updateSubGroup", "-c", CLUSTER, "-g", f.spare_group)
    f.expect(["cloneGroupOffset", "-s", f.group, "-d", f.spare_group, "-t", f.topic, "-o", "true"],
             "clone group offset success")  # fmt: skip


# ---- messages ----------------------------------------------------------------------------------------------


def is_message(text, f, number):
    """The output shows the fixture's message of that number, whole."""
    unique, offset_id, queue, offset = f.sent[number]
    must(text, rf"^Topic:\s+{f.topic}$", rf"^Tags:\s+\[tag{number % 2}\]$", rf"^Keys:\s+\[key{number} all\]$",
         rf"^Queue ID:\s+{queue}$", rf"^Queue Offset:\s+{offset}$", rf"UNIQ_KEY={unique}",
         rf"^Store Host:\s+{f.server.broker}$")  # fmt: skip
    path = re.search(r"^Message Body Path:\s+(\S+)$", text, re.MULTILINE)
    if path and Path(path.group(1)).exists() and Path(path.group(1)).read_text() != f"body-{number}":
        raise AssertionError(f"the body written to a file is not body-{number}")


@check("queryMsgById")
def query_msg_by_id(f):
    out = f.run("queryMsgById", "-t", f.topic, "-i", f.sent[5][1])
    must(out, rf"^OffsetID:\s+{f.sent[5][1]}$", rf"consumerGroup={f.group}, trackType=CONSUMED")
    is_message(out, f, 5)


@check("queryMsgByKey")
def query_msg_by_key(f):
    def found():
        out = f.run("queryMsgByKey", "-t", f.topic, "-k", "key7")
        must(out, rf"^{f.sent[7][0]}\s+{f.sent[7][2]}\s+{f.sent[7][3]}\s")
        must_not(out, f.sent[6][0])
        out = f.run("queryMsgByKey", "-t", f.topic, "-k", "all")
        must(out, *(sent[0] for sent in f.sent))

    eventually(found, 20)


@check("queryMsgByUniqueKey")
def query_msg_by_unique_key(f):
    out = f.run("queryMsgByUniqueKey", "-t", f.topic, "-i", f.sent[3][0])
    is_message(out, f, 3)
    must(out, rf"consumerGroup={f.group}, trackType=CONSUMED")


@check("queryMsgByOffset")
def query_msg_by_offset(f):
    out = f.run("queryMsgByOffset", "-t", f.topic, "-b", BROKER, "-i", f.sent[9][2], "-o", f.sent[9][3])
    is_message(out, f, 9)


@check("queryCq")
def query_cq(f):
    f.expect(["queryCq", "-t", f.topic, "-q", 0, "-i", 0, "-c", 5, "-b", f.server.broker], "max: 3, min: 0",
             "idx: 2", r"physicSize=\d+, tagsCode=")  # fmt: skip


@check("printMsg")
def print_msg(f):
    out = f.run("printMsg", "-t", f.topic, "-d", "true")
    must(out, *(rf"BODY: body-{i}$" for i in range(12)), rf"minOffset=0, maxOffset=3, MessageQueue \[topic={f.topic}")


@check("printMsgByQueue")
def print_msg_by_queue(f):
    out = f.run("printMsgByQueue", "-t", f.topic, "-a", BROKER, "-i", f.sent[0][2], "-p", "true", "-d", "true",
                "-f", "true")  # fmt: skip
    must(out, r"BODY: body-0$", r"Tag: tag\d\s+Count: \d")


@check("consumeMessage")
def consume_message(f):
    must(f.run("consumeMessage", "-t", f.topic, "-b", BROKER, "-i", 0, "-c", 3), "Consume ok", r"BODY: body-\d+")


@check("sendMessage")
def send_message(f):
    f.run("updateTopic", "-c", CLUSTER, "-t", f.spare + "-send", "-r", 1, "-w", 1)
    eventually(lambda: f.expect(["topicRoute", "-t", f.spare + "-send"], r'"readQueueNums":\s*1'), 15)
    f.expect(["sendMessage", "-t", f.spare + "-send", "-p", "hello", "-k", "admkey", "-c", "TagAdm"],
             rf"^{BROKER}\s+0\s+SEND_OK\s+[0-9A-F]{{32}}")  # fmt: skip
    f.expect(["printMsg", "-t", f.spare + "-send", "-d", "true"], "BODY: hello$")


@check("checkMsgSendRT")
def check_msg_send_rt(f):
    f.expect(["checkMsgSendRT", "-t", f.topic, "-a", 3, "-s", 128], "#Send Result", r"true\s+\d", "Avg RT")


# ---- name server -------------------------------------------------------------------------------------------


@check("updateKvConfig")
def update_kv_config(f):
    f.expect(["updateKvConfig", "-s", "interop", "-k", "k1", "-v", "v1"], "success")


@check("deleteKvConfig")
def delete_kv_config(f):
    f.run("updateKvConfig", "-s", "interop", "-k", "k1", "-v", "v1")
    f.expect(["deleteKvConfig", "-s", "interop", "-k", "k1"], "success")


@check("getNamesrvConfig")
def get_namesrv_config(f):
    f.expect(["getNamesrvConfig", "-n", f.server.namesrv], rf"^listenPort\s+=\s+{f.server.namesrv_port}$")


@check("wipeWritePerm")
def wipe_write_perm(f):
    """The route loses its write bit, and gets it back; last, because nothing can be sent in between."""
    out = f.run("wipeWritePerm", "-b", BROKER)
    must(out, rf"wipe write perm of broker\[{BROKER}\] in name server\[{f.server.namesrv}\] OK, [1-9]\d*")
    f.expect(["topicRoute", "-t", f.topic], r'"perm":\s*4')
    f.expect(["addWritePerm", "-b", BROKER], rf"add write perm of broker\[{BROKER}\] .* OK, [1-9]\d*")
    f.expect(["topicRoute", "-t", f.topic], r'"perm":\s*6')


NAMES = [name for name, _ in CHECKS]
