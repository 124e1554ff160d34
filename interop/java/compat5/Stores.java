package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A store written through one server and read through another.
 *
 * <p>{@code store-write} fills a store and writes down, in the file {@code manifest=...}, every message exactly as
 * the writing server serves it, the positions it kept, and what is still to come. The other scenarios run after
 * another server (or the same kind again) has opened the store, and compare. Manifest lines, split by tabs:
 * {@code m TOPIC QUEUE OFFSET DETAILS}, {@code p GROUP TOPIC QUEUE OFFSET}, {@code d BODY DUE-MS}, {@code r BODY}.
 */
final class Stores {
    private static final int PLAIN = 60;
    private static final int HALF = 10;

    private Stores() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("store-write", Stores::write);
        all.put("store-messages", Stores::messages);
        all.put("store-queries", Stores::queries);
        all.put("store-positions", Stores::positions);
        all.put("store-pending", Stores::pending);
        all.put("store-append", Stores::append);
    }

    private static String topic(Ctx ctx, String kind) {
        return ctx.arg("prefix") + "-" + kind;
    }

    /** False when the server that wrote the store cannot do transactions: their topic is empty then. */
    private static boolean transactional(Ctx ctx) {
        return ctx.arg("transactions", "True").equals("True");
    }

    private static String group(Ctx ctx, String kind) {
        return "g-" + topic(ctx, kind);
    }

    // ---- writing -------------------------------------------------------------------------------------------

    static void write(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        for (String kind : List.of("plain", "batch", "large", "delay", "retry", "tx")) {
            Compat.createTopic(p, topic(ctx, kind), kind.equals("plain") ? 4 : 1);
        }
        ctx.until(30, "routes", () -> {
            try {
                return p.fetchPublishMessageQueues(topic(ctx, "tx")).size() == 1;
            } catch (MQClientException e) {
                return false;
            }
        });
        List<String> manifest = new ArrayList<>();
        plain(ctx, p);
        batches(ctx, p);
        large(ctx, p);
        if (transactional(ctx)) {
            transactions(ctx);
        }
        retries(ctx, p, manifest);
        delays(ctx, p, manifest);
        DefaultMQPullConsumer c = ctx.pull(group(ctx, "plain"));
        positionsKept(ctx, c, manifest);
        List<String> topics = new ArrayList<>();
        for (String kind : List.of("plain", "batch", "large", "delay", "retry", "tx")) {
            topics.add(topic(ctx, kind));
        }
        topics.add("%DLQ%" + group(ctx, "dead"));
        for (String topic : topics) {
            for (MessageExt m : everything(ctx, c, topic)) {
                manifest.add(String.join("\t", "m", topic, String.valueOf(m.getQueueId()),
                    String.valueOf(m.getQueueOffset()), details(m)));
            }
        }
        Files.write(Path.of(ctx.arg("manifest")), manifest);
        ctx.note(manifest.size() + " lines");
    }

    private static void plain(Ctx ctx, DefaultMQProducer p) throws Exception {
        for (int i = 0; i < PLAIN; i++) {
            Message m = Ctx.message(topic(ctx, "plain"), i % 3 == 0 ? "标签" : "T" + i % 3, "key" + i + " all",
                "plain-" + i);
            m.putUserProperty("名字", "值 \uD83D\uDE00 " + i);
            m.setFlag(i);
            Sending.ok(p.send(m, (qs, x, arg) -> qs.get((Integer) arg), i % 4));
        }
    }

    private static void batches(Ctx ctx, DefaultMQProducer p) throws Exception {
        for (int b = 0; b < 3; b++) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                batch.add(Ctx.message(topic(ctx, "batch"), "B", "bkey" + (b * 10 + i), "batch-" + (b * 10 + i)));
            }
            Sending.ok(p.send(batch));
        }
    }

    /** Over 2 MB that do not compress, so that small log files roll a few times; some compressed bodies too. */
    private static void large(Ctx ctx, DefaultMQProducer p) throws Exception {
        Random random = new Random(7);
        for (int i = 0; i < 24; i++) {
            byte[] body = new byte[100_000 + i * 37];
            random.nextBytes(body);
            Sending.ok(p.send(new Message(topic(ctx, "large"), "L", "lkey" + i, body)));
            Sending.ok(p.send(Ctx.message(topic(ctx, "large"), "Z", "zkey" + i, "text ".repeat(2000) + i)));
        }
    }

    private static void transactions(Ctx ctx) throws Exception {
        TransactionMQProducer p = new TransactionMQProducer("tx-" + topic(ctx, "tx"));
        p.setNamesrvAddr(ctx.namesrv);
        p.setInstanceName(Ctx.instance());
        p.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                return (LocalTransactionState) arg;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                return LocalTransactionState.UNKNOW;
            }
        });
        p.start();
        ctx.onClose(p::shutdown);
        for (int i = 0; i < 5; i++) {
            Sending.ok(p.sendMessageInTransaction(Ctx.message(topic(ctx, "tx"), "t", "xkey" + i, "commit-" + i),
                LocalTransactionState.COMMIT_MESSAGE));
            Sending.ok(p.sendMessageInTransaction(Ctx.message(topic(ctx, "tx"), "t", "", "rollback-" + i),
                LocalTransactionState.ROLLBACK_MESSAGE));
        }
        for (String body : List.of("open-commit", "open-rollback")) {
            Sending.ok(p.sendMessageInTransaction(Ctx.message(topic(ctx, "tx"), "t", "", body),
                LocalTransactionState.UNKNOW));
        }
    }

    /** A producer that comes back and answers for the transactions that were open when the server stopped. */
    private static Map<String, Integer> answering(Ctx ctx) throws Exception {
        Map<String, Integer> checks = new ConcurrentHashMap<>();
        TransactionMQProducer p = new TransactionMQProducer("tx-" + topic(ctx, "tx"));
        p.setNamesrvAddr(ctx.namesrv);
        p.setInstanceName(Ctx.instance());
        p.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                return (LocalTransactionState) arg;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                checks.merge(Ctx.text(m), 1, Integer::sum);
                return Ctx.text(m).equals("open-rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
                    : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        p.start();
        ctx.onClose(p::shutdown);
        // The broker learns of a producer from its heartbeats, and those go to brokers of topics it has sent to.
        p.fetchPublishMessageQueues(topic(ctx, "tx"));
        Sending.ok(p.sendMessageInTransaction(Ctx.message(topic(ctx, "tx"), "t", "", "answering"),
            LocalTransactionState.ROLLBACK_MESSAGE));
        return checks;
    }

    /** One group whose message has died (in its dead-letter topic), one whose retry is due in 30 s. */
    private static void retries(Ctx ctx, DefaultMQProducer p, List<String> manifest) throws Exception {
        Sending.ok(p.send(Ctx.message(topic(ctx, "retry"), "R", "rkey", "to-retry")));
        Recorder dead = new Recorder();
        Recorder waiting = new Recorder();
        DefaultMQPushConsumer a = refusing(ctx, group(ctx, "dead"), 0, 1, dead);
        DefaultMQPushConsumer b = refusing(ctx, group(ctx, "retry"), 16, 4, waiting);
        DefaultMQPullConsumer c = ctx.pull(group(ctx, "look"));
        ctx.until(40, "the dead letter and the refused message", () -> {
            try {
                Thread.sleep(200);
                return waiting.total() > 0 && !everything(ctx, c, "%DLQ%" + group(ctx, "dead")).isEmpty();
            } catch (Exception e) {
                return false;
            }
        });
        Thread.sleep(1000); // the refused message's way back to the server
        a.shutdown();
        b.shutdown();
        manifest.add("r\tto-retry");
    }

    private static DefaultMQPushConsumer refusing(Ctx ctx, String group, int times, int level, Recorder rec)
        throws Exception {
        DefaultMQPushConsumer c = ctx.push(group);
        c.setMaxReconsumeTimes(times);
        c.subscribe(topic(ctx, "retry"), "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            msgs.forEach(m -> rec.add("A", m));
            context.setDelayLevelWhenNextConsume(level);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        c.start();
        return c;
    }

    /** One delayed message that has come, two that will come after the server was stopped. */
    private static void delays(Ctx ctx, DefaultMQProducer p, List<String> manifest) throws Exception {
        String topic = topic(ctx, "delay");
        Message soon = Ctx.message(topic, "D", "dkey", "delayed-soon");
        soon.setDelayTimeLevel(1);
        Sending.ok(p.send(soon));
        ctx.drainTopic(ctx.pull(group(ctx, "look2")), topic, 1);
        for (int level : new int[] {3, 4}) {
            Message m = Ctx.message(topic, "D", "dkey" + level, "delayed-" + level);
            m.setDelayTimeLevel(level);
            long due = System.currentTimeMillis() + (level == 3 ? 10_000 : 30_000);
            Sending.ok(p.send(m));
            manifest.add("d\tdelayed-" + level + "\t" + due);
        }
    }

    private static void positionsKept(Ctx ctx, DefaultMQPullConsumer c, List<String> manifest) throws Exception {
        String topic = topic(ctx, "plain");
        for (MessageQueue mq : c.fetchSubscribeMessageQueues(topic)) {
            // A commit is refused until the group is known, which is after the client's first heartbeat.
            ctx.until(30, "position kept", () -> {
                try {
                    c.updateConsumeOffset(mq, HALF);
                    c.getOffsetStore().persist(mq);
                } catch (MQClientException e) {
                    return false;
                }
                return fetched(c, mq) == HALF;
            });
            manifest.add(String.join("\t", "p", group(ctx, "plain"), topic, String.valueOf(mq.getQueueId()),
                String.valueOf(HALF)));
        }
    }

    private static long fetched(DefaultMQPullConsumer c, MessageQueue mq) {
        try {
            return c.fetchConsumeOffset(mq, true);
        } catch (MQClientException e) {
            return -1;
        }
    }

    // ---- comparing -----------------------------------------------------------------------------------------

    private static List<MessageExt> everything(Ctx ctx, DefaultMQPullConsumer c, String topic) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        for (MessageQueue mq : c.fetchSubscribeMessageQueues(topic)) {
            all.addAll(ctx.drain(c, mq, Math.max(0, c.minOffset(mq))));
        }
        all.sort(Comparator.comparingInt(MessageExt::getQueueId).thenComparingLong(MessageExt::getQueueOffset));
        return all;
    }

    /** All that a reader can see of a message, in one comparable text. */
    private static String details(MessageExt m) {
        Map<String, String> properties = new TreeMap<>(m.getProperties());
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        CRC32 crc = new CRC32();
        crc.update(m.getBody());
        return ("id=" + m.getMsgId() + " offsetId=" + ((MessageClientExt) m).getOffsetMsgId() + " body=" + crc.getValue()
            + "/" + m.getBody().length + " crc=" + m.getBodyCRC() + " size=" + m.getStoreSize() + " flag=" + m.getFlag()
            + " sysFlag=" + m.getSysFlag() + " born=" + m.getBornTimestamp() + "@" + m.getBornHost() + " stored="
            + m.getStoreTimestamp() + "@" + m.getStoreHost() + " at=" + m.getCommitLogOffset() + " reconsumed="
            + m.getReconsumeTimes() + " prepared=" + m.getPreparedTransactionOffset() + " properties=" + properties)
            .replaceAll("[\\t\\n\\r]", "?");
    }

    private static List<String[]> manifest(Ctx ctx, String kind) throws IOException {
        List<String[]> lines = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(ctx.arg("manifest")))) {
            if (line.startsWith(kind + "\t")) {
                lines.add(line.split("\t"));
            }
        }
        return lines;
    }

    /** Every message is where it was, with everything it had; nothing else has appeared below the old ends. */
    static void messages(Ctx ctx) throws Exception {
        DefaultMQPullConsumer c = ctx.pull(group(ctx, "verify"));
        Map<String, Map<String, String>> expected = new TreeMap<>();
        for (String[] line : manifest(ctx, "m")) {
            expected.computeIfAbsent(line[1], t -> new HashMap<>()).put(line[2] + "@" + line[3], line[4]);
        }
        int count = 0;
        for (Map.Entry<String, Map<String, String>> topic : expected.entrySet()) {
            Map<String, String> came = new HashMap<>();
            for (MessageExt m : everything(ctx, c, topic.getKey())) {
                came.put(m.getQueueId() + "@" + m.getQueueOffset(), details(m));
            }
            for (Map.Entry<String, String> e : topic.getValue().entrySet()) {
                Ctx.equal(e.getValue(), came.get(e.getKey()), topic.getKey() + " queue@offset " + e.getKey());
                count++;
            }
            // Delayed messages may have come meanwhile; everywhere else the ends are the old ones.
            if (!topic.getKey().endsWith("-delay")) {
                Ctx.equal(topic.getValue().size(), came.size(), "messages in " + topic.getKey());
            }
        }
        ctx.note(count + " messages");
    }

    /** Keys, ids inside and outside of batches, and offset ids find what they found before. */
    static void queries(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        Map<String, String> topics = Map.of("key", "plain", "bkey", "batch", "lkey", "large", "zkey", "large", "xkey",
            "tx");
        for (Map.Entry<String, String> e : topics.entrySet()) {
            if (e.getValue().equals("tx") && !transactional(ctx)) {
                continue;
            }
            for (int i = 0; i < 5; i++) {
                String key = e.getKey() + i;
                ctx.until(15, "key " + key + " of " + e.getValue(), () -> Reading.found(p, topic(ctx, e.getValue()),
                    key, 0).size() == 1);
            }
        }
        int n = Reading.found(p, topic(ctx, "plain"), "all", 0).size();
        Ctx.equal(32, n, "found by a key of 60 messages, 32 asked for");
        for (String[] line : manifest(ctx, "m")) {
            if (line[1].equals(topic(ctx, "plain")) || line[1].equals(topic(ctx, "batch"))) {
                for (String name : List.of("offsetId=", "id=")) {
                    String id = line[4].substring(line[4].indexOf(name) + name.length()).split(" ")[0];
                    MessageExt m = p.viewMessage(line[1], id);
                    Ctx.equal(line[4], details(m), "found by " + name + id);
                }
            }
        }
    }

    /** The positions are the old ones, and a member goes on from there. */
    static void positions(Ctx ctx) throws Exception {
        DefaultMQPullConsumer c = ctx.pull(group(ctx, "plain"));
        for (String[] line : manifest(ctx, "p")) {
            for (MessageQueue mq : c.fetchSubscribeMessageQueues(line[2])) {
                if (mq.getQueueId() == Integer.parseInt(line[3])) {
                    Ctx.equal(Long.parseLong(line[4]), fetched(c, mq), "position of queue " + line[3]);
                }
            }
        }
        c.shutdown();
        Recorder rec = new Recorder();
        DefaultMQPushConsumer member = Consuming.member(ctx, group(ctx, "plain"), topic(ctx, "plain"), "*", "A", rec,
            false);
        ctx.start(member);
        int rest = PLAIN - 4 * HALF;
        ctx.until(30, () -> rec.distinct() + " of the remaining " + rest, () -> rec.distinct() >= rest);
        Thread.sleep(500);
        Ctx.equal(rest, rec.total(), "messages after the kept positions");
        for (Recorder.Got g : rec.all()) {
            Ctx.that(g.offset() >= HALF, () -> "came again: " + g.body());
        }
    }

    /** What was delayed or refused before the stop comes after it: not early, and not never. */
    static void pending(Ctx ctx) throws Exception {
        Recorder ended = new Recorder();
        Map<String, Integer> checks = new ConcurrentHashMap<>();
        if (transactional(ctx)) {
            ctx.start(Consuming.member(ctx, group(ctx, "ended"), topic(ctx, "tx"), "*", "A", ended, false));
            checks = answering(ctx);
        }
        Recorder retried = new Recorder();
        DefaultMQPushConsumer c = ctx.push(group(ctx, "retry"));
        c.subscribe(topic(ctx, "retry"), "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            msgs.forEach(m -> retried.add("A", m));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ctx.start(c);
        Recorder delayed = new Recorder();
        ctx.start(Consuming.member(ctx, group(ctx, "delayed"), topic(ctx, "delay"), "*", "A", delayed, false));
        ctx.until(60, () -> "retried " + retried.total() + " of 1, delayed " + delayed.distinct() + " of 3",
            () -> retried.total() >= 1 && delayed.distinct() >= 3);
        Ctx.equal(1, retried.all().get(0).reconsumed(), "reconsume times of the refused message");
        for (String[] line : manifest(ctx, "d")) {
            for (Recorder.Got g : delayed.all()) {
                long due = Long.parseLong(line[2]);
                Ctx.that(!g.body().equals(line[1]) || g.storedMs() >= due - 5, () -> g.body() + " came "
                    + (due - g.storedMs()) + " ms early");
            }
        }
        if (transactional(ctx)) {
            Map<String, Integer> asked = checks;
            ctx.until(90, () -> "the open transactions' ends; checks " + asked,
                () -> ended.times("open-commit") >= 1 && asked.containsKey("open-rollback"));
            Thread.sleep(1000);
            Ctx.equal(6, ended.distinct(), "committed messages");
            // The original may ask twice after a kill, and stores a message for each commit it is told.
            Ctx.that(ended.total() == 6 || ctx.arg("reader").equals("java"), () -> "a transaction ended twice");
        }
    }

    /** New messages take the next offsets: nothing is overwritten, nothing is left out; new topics work. */
    static void append(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        Set<String> places = new HashSet<>();
        for (int i = 0; i < 40; i++) {
            SendResult r = p.send(Ctx.message(topic(ctx, "plain"), "new", "nkey" + i, "new-" + i),
                (qs, x, arg) -> qs.get((Integer) arg), i % 4);
            Sending.ok(r);
            Ctx.equal(PLAIN / 4 + i / 4, r.getQueueOffset(), "offset of new message " + i);
            Ctx.that(places.add(r.getOffsetMsgId()), () -> "offset id given twice");
        }
        DefaultMQPullConsumer c = ctx.pull(group(ctx, "verify3"));
        Ctx.equal(PLAIN + 40, everything(ctx, c, topic(ctx, "plain")).size(), "messages after appending");
        ctx.until(15, "a new key", () -> Reading.found(p, topic(ctx, "plain"), "nkey7", 0).equals(Set.of("new-7")));
        String fresh = ctx.createTopic(p, ctx.arg("label"), 2);
        Sending.ok(p.send(Ctx.message(fresh, "", "", "first")));
        ctx.drainTopic(c, fresh, 1);
    }
}
