package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sending: what was acknowledged is there, whole, where the acknowledgement said. */
final class Sending {
    private Sending() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("send-sync", Sending::sync);
        all.put("send-auto-create", Sending::autoCreate);
        all.put("send-async", Sending::async);
        all.put("send-oneway", Sending::oneway);
        all.put("send-selector", Sending::selector);
        all.put("send-properties", Sending::properties);
        all.put("send-big", Sending::big);
        all.put("send-compressed", ctx -> compressed(ctx, "ZLIB"));
        all.put("send-refused", Sending::refused);
    }

    static void ok(SendResult r) {
        Ctx.equal(SendStatus.SEND_OK, r.getSendStatus(), "send status");
    }

    /** Offsets in each queue are contiguous from 0, and each message is at its offset. */
    static void sync(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 4);
        Map<String, String> where = new HashMap<>();
        Map<Integer, Long> next = new HashMap<>();
        for (int i = 0; i < 20; i++) {
            SendResult r = p.send(Ctx.message(topic, "T" + i % 3, "k" + i, "body-" + i));
            ok(r);
            int queue = r.getMessageQueue().getQueueId();
            Ctx.equal(next.getOrDefault(queue, 0L), (Long) r.getQueueOffset(), "offset in queue " + queue);
            next.put(queue, r.getQueueOffset() + 1);
            Ctx.that(where.put(queue + "@" + r.getQueueOffset(), "body-" + i) == null, () -> "offset given twice");
            Ctx.that(r.getMsgId() != null && r.getMsgId().length() >= 32, () -> "message id " + r.getMsgId());
        }
        Ctx.equal(4, next.size(), "queues used by a round-robin producer");
        for (MessageExt m : ctx.drainTopic(ctx.pull(ctx.group("")), topic, 20)) {
            String body = where.get(m.getQueueId() + "@" + m.getQueueOffset());
            Ctx.equal(body, Ctx.text(m), "body at queue " + m.getQueueId() + " offset " + m.getQueueOffset());
            int i = Integer.parseInt(body.substring(5));
            Ctx.equal("T" + i % 3, m.getTags(), "tag");
            Ctx.equal("k" + i, m.getKeys(), "keys");
            Ctx.equal(topic, m.getTopic(), "topic");
            Ctx.that(Math.abs(System.currentTimeMillis() - m.getStoreTimestamp()) < 60_000, () -> "store time");
            Ctx.that(m.getStoreTimestamp() >= m.getBornTimestamp() - 5, () -> "stored before it was born");
        }
    }

    /** The first send to an unknown topic makes it, with the default number of queues, and loses nothing. */
    static void autoCreate(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.topic("");
        for (int i = 0; i < 8; i++) {
            ok(p.send(Ctx.message(topic, "", "k" + i, "auto-" + i)));
        }
        ctx.until(30, "route of the created topic", () -> {
            try {
                return !p.fetchPublishMessageQueues(topic).isEmpty();
            } catch (Exception e) {
                return false;
            }
        });
        Ctx.equal(4, p.fetchPublishMessageQueues(topic).size(), "queues of the created topic");
        ctx.drainTopic(ctx.pull(ctx.group("")), topic, 8);
    }

    static void async(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 4);
        CountDownLatch done = new CountDownLatch(100);
        AtomicReference<Throwable> trouble = new AtomicReference<>();
        for (int i = 0; i < 100; i++) {
            p.send(Ctx.message(topic, "A", "k" + i, "async-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    if (r.getSendStatus() != SendStatus.SEND_OK) {
                        trouble.set(new AssertionError("send status " + r.getSendStatus()));
                    }
                    done.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    trouble.set(e);
                    done.countDown();
                }
            });
        }
        Ctx.that(done.await(30, TimeUnit.SECONDS), () -> done.getCount() + " of 100 callbacks did not come in 30 s");
        Ctx.that(trouble.get() == null, () -> "async send: " + trouble.get());
        List<String> bodies = new ArrayList<>();
        for (MessageExt m : ctx.drainTopic(ctx.pull(ctx.group("")), topic, 100)) {
            bodies.add(Ctx.text(m));
        }
        Ctx.equal(100, Ctx.counts(bodies).size(), "different bodies");
    }

    static void oneway(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        for (int i = 0; i < 50; i++) {
            p.sendOneway(Ctx.message(topic, "", "k" + i, "oneway-" + i));
        }
        List<String> bodies = new ArrayList<>();
        for (MessageExt m : ctx.drainTopic(ctx.pull(ctx.group("")), topic, 50)) {
            bodies.add(Ctx.text(m));
        }
        Ctx.equal(50, Ctx.counts(bodies).size(), "different bodies");
    }

    /** The selector's queue is the queue used, and each queue keeps the order of sending. */
    static void selector(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 4);
        for (int i = 0; i < 40; i++) {
            SendResult r = p.send(Ctx.message(topic, "", "", "order-" + i % 4 + "-" + i),
                (queues, m, arg) -> queues.get((Integer) arg), i % 4);
            ok(r);
        }
        DefaultMQPullConsumer c = ctx.pull(ctx.group(""));
        List<MessageQueue> queues = p.fetchPublishMessageQueues(topic);
        for (int q = 0; q < 4; q++) {
            List<String> bodies = new ArrayList<>();
            for (MessageExt m : ctx.drain(c, queues.get(q), 0)) {
                bodies.add(Ctx.text(m));
            }
            List<String> expected = new ArrayList<>();
            for (int i = q; i < 40; i += 4) {
                expected.add("order-" + q + "-" + i);
            }
            Ctx.equal(expected, bodies, "bodies of queue " + q);
        }
    }

    /** Text of any language in body, tag, key and property; also several keys, a flag, and odd property values. */
    static void properties(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        Message m = Ctx.message(topic, "标签", "订单-1 订单-2", "正文 \uD83D\uDE80 body");
        m.setFlag(7);
        m.putUserProperty("名字", "值 \uD83D\uDE00 emoji");
        m.putUserProperty("equals", "a=b;c d\te");
        m.putUserProperty("long", "x".repeat(5000));
        ok(p.send(m));
        Message bare = new Message(topic, new byte[] {0});
        ok(p.send(bare));
        List<MessageExt> got = ctx.drainTopic(ctx.pull(ctx.group("")), topic, 2);
        MessageExt first = got.get(0);
        Ctx.equal("正文 \uD83D\uDE80 body", Ctx.text(first), "body");
        Ctx.equal("标签", first.getTags(), "tag");
        Ctx.equal("订单-1 订单-2", first.getKeys(), "keys");
        Ctx.equal(7, first.getFlag(), "flag");
        Ctx.equal("值 \uD83D\uDE00 emoji", first.getProperty("名字"), "user property");
        Ctx.equal("a=b;c d\te", first.getProperty("equals"), "user property with odd signs");
        Ctx.equal("x".repeat(5000), first.getProperty("long"), "long user property");
        MessageExt second = got.get(1);
        Ctx.that(Arrays.equals(new byte[] {0}, second.getBody()), () -> "one-byte body");
        Ctx.equal(null, second.getTags(), "tag of a message without one");
        Ctx.equal(0, second.getFlag(), "flag of the second");
    }

    /** 3.9 MB that do not compress. */
    static void big(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        String topic = ctx.createTopic(p, "", 1);
        byte[] body = new byte[3_900_000];
        new Random(42).nextBytes(body);
        for (int i = 0; i < 2; i++) {
            ok(p.send(new Message(topic, "big", "k" + i, body)));
        }
        for (MessageExt m : ctx.drainTopic(ctx.pull(ctx.group("")), topic, 2)) {
            Ctx.that(Arrays.equals(body, m.getBody()), () -> "the body came back different");
        }
    }

    /** Bodies of 4 KiB and more are compressed by the client: stored so, read back whole. */
    static void compressed(Ctx ctx, String kind) throws Exception {
        DefaultMQProducer p = ctx.producer();
        if (!Compat.setCompression(p, kind)) {
            throw new AssertionError("this client cannot compress with " + kind);
        }
        String topic = ctx.createTopic(p, "", 1);
        String body = "compress me \uD83D\uDE80 ".repeat(3000);
        ok(p.send(Ctx.message(topic, "z", "k", body)));
        ok(p.send(Ctx.message(topic, "z", "k", "small")));
        List<MessageExt> got = ctx.drainTopic(ctx.pull(ctx.group("")), topic, 2);
        Ctx.equal(body, Ctx.text(got.get(0)), "body");
        Ctx.that(got.get(0).getStoreSize() < 10_000, () -> "stored size " + got.get(0).getStoreSize());
        Ctx.equal("small", Ctx.text(got.get(1)), "small body");
        // Bits 8 to 10 name the kind: 1 LZ4, 2 ZSTD, 3 ZLIB; clients before 4.9 write none for ZLIB.
        int bits = got.get(0).getSysFlag() >> 8 & 7;
        Ctx.that(bits == (kind.equals("LZ4") ? 1 : kind.equals("ZSTD") ? 2 : 3) || kind.equals("ZLIB") && bits == 0,
            () -> "compression bits " + bits + " for " + kind);
    }

    /** What cannot be stored is refused with a code and a reason, not with silence. */
    static void refused(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        p.setRetryTimesWhenSendFailed(0);
        String topic = ctx.createTopic(p, "", 1);
        byte[] body = new byte[4 * 1024 * 1024 + 100_000];
        try {
            SendResult r = p.send(new Message(topic, "big", "k", body));
            throw new AssertionError("4.1 MiB were accepted: " + r);
        } catch (MQBrokerException e) {
            Ctx.equal(13, e.getResponseCode(), "response code for a body over the limit");
        }
        ok(p.send(Ctx.message(topic, "", "", "and the connection still works")));
        ctx.drainTopic(ctx.pull(ctx.group("")), topic, 1);
    }
}
