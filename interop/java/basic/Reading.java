package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Plain pulls, offsets, and finding one message. */
final class Reading {
    private Reading() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("pull", Reading::pull);
        all.put("pull-blocking", Reading::pullBlocking);
        all.put("offsets", Reading::offsets);
        all.put("query", Reading::query);
    }

    /** Pages of a queue, its two ends, one past the end, far past the end, and positions kept for the group. */
    static void pull(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        DefaultMQPullConsumer c = ctx.pull(ctx.group(""));
        MessageQueue mq = c.fetchSubscribeMessageQueues(topic).iterator().next();
        Ctx.equal(PullStatus.NO_NEW_MSG, c.pull(mq, "*", 0, 10).getPullStatus(), "pull of an empty queue");
        for (int i = 0; i < 50; i++) {
            Sending.ok(p.send(Ctx.message(topic, i % 2 == 0 ? "even" : "odd", "", "m" + i)));
        }
        // The original shows a message in its queue a moment after it acknowledged it.
        ctx.until(10, "all 50 in the queue", () -> {
            try {
                return c.maxOffset(mq) == 50;
            } catch (MQClientException e) {
                return false;
            }
        });
        PullResult page = c.pull(mq, "*", 10, 20);
        Ctx.equal(PullStatus.FOUND, page.getPullStatus(), "status of a page");
        Ctx.equal(20, page.getMsgFoundList().size(), "size of a page of 20");
        Ctx.equal(30, page.getNextBeginOffset(), "next offset");
        Ctx.equal(0, page.getMinOffset(), "min offset");
        Ctx.equal(50, page.getMaxOffset(), "max offset");
        for (int i = 0; i < 20; i++) {
            Ctx.equal("m" + (10 + i), Ctx.text(page.getMsgFoundList().get(i)), "body " + i + " of the page");
            Ctx.equal(10 + i, page.getMsgFoundList().get(i).getQueueOffset(), "queue offset");
        }
        PullResult even = c.pull(mq, "even", 0, 32);
        for (MessageExt m : even.getMsgFoundList()) {
            Ctx.equal("even", m.getTags(), "tag chosen by the server");
        }
        PullResult end = c.pull(mq, "*", 50, 10);
        Ctx.equal(PullStatus.NO_NEW_MSG, end.getPullStatus(), "status at the end");
        Ctx.equal(50, end.getNextBeginOffset(), "next offset at the end");
        for (long past : new long[] {51, 1050}) {
            PullResult beyond = c.pull(mq, "*", past, 10);
            Ctx.equal(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "status at offset " + past);
            Ctx.equal(50, beyond.getNextBeginOffset(), "corrected offset from " + past);
        }
        c.updateConsumeOffset(mq, 33);
        Compat.persist(c, mq);
        ctx.until(10, "the kept position 33", () -> {
            try {
                return c.fetchConsumeOffset(mq, true) == 33;
            } catch (MQClientException e) {
                return false;
            }
        });
    }

    /** A pull at the end waits at the server and is answered when a message arrives, at once. */
    static void pullBlocking(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        DefaultMQPullConsumer c = ctx.pull(ctx.group(""));
        MessageQueue mq = c.fetchSubscribeMessageQueues(topic).iterator().next();
        long[] sentAt = new long[1];
        Thread later = new Thread(() -> {
            try {
                Thread.sleep(2000);
                sentAt[0] = System.currentTimeMillis();
                p.send(Ctx.message(topic, "", "", "awaited"));
            } catch (Exception e) {
                System.err.println(ctx.name + ": " + e);
            }
        });
        later.start();
        PullResult r = c.pullBlockIfNotFound(mq, "*", 0, 10);
        long woke = System.currentTimeMillis();
        later.join();
        Ctx.equal(PullStatus.FOUND, r.getPullStatus(), "status of the waiting pull");
        Ctx.equal("awaited", Ctx.text(r.getMsgFoundList().get(0)), "body");
        Ctx.that(sentAt[0] > 0 && woke - sentAt[0] < 1500, () -> "woken " + (woke - sentAt[0]) + " ms after the send");
        ctx.note("woken " + (woke - sentAt[0]) + " ms after the send");
    }

    static void offsets(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        DefaultMQPullConsumer c = ctx.pull(ctx.group(""));
        MessageQueue mq = c.fetchSubscribeMessageQueues(topic).iterator().next();
        Ctx.equal(0, c.maxOffset(mq), "max offset of an empty queue");
        Ctx.equal(0, c.minOffset(mq), "min offset of an empty queue");
        List<Long> times = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
            times.add(System.currentTimeMillis());
            Thread.sleep(150);
        }
        ctx.drainTopic(c, topic, 3);
        Ctx.equal(3, c.maxOffset(mq), "max offset");
        List<MessageExt> all = ctx.drain(c, mq, 0);
        for (int i = 0; i < 3; i++) {
            Ctx.equal(i, c.searchOffset(mq, all.get(i).getStoreTimestamp()), "offset at the store time of m" + i);
        }
        Ctx.equal(1, c.searchOffset(mq, all.get(0).getStoreTimestamp() + 50), "offset between m0 and m1");
        Ctx.equal(0, c.searchOffset(mq, all.get(0).getStoreTimestamp() - 60_000), "offset before the first");
        Ctx.equal(3, c.searchOffset(mq, System.currentTimeMillis() + 60_000), "offset after the last");
        Ctx.equal(all.get(0).getStoreTimestamp(), c.earliestMsgStoreTime(mq), "earliest store time");
        long kept = c.fetchConsumeOffset(mq, true);
        Ctx.that(kept <= 0, () -> "a group that committed nothing has position " + kept);
    }

    /** By the id of the answer, and by each word of the keys; a key of another topic is not found. */
    static void query(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        String other = ctx.createTopic(p, "other", 1);
        long begin = System.currentTimeMillis() - 1000;
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            SendResult r = p.send(Ctx.message(topic, "tag", "order-" + i + " all", "m" + i));
            Sending.ok(r);
            sent.add(r);
        }
        Sending.ok(p.send(Ctx.message(other, "", "order-1", "other")));
        ctx.until(15, "12 messages by the common key", () -> found(p, topic, "all", begin).size() == 12);
        for (int i = 0; i < 12; i++) {
            Ctx.equal(Set.of("m" + i), found(p, topic, "order-" + i, begin), "found by key order-" + i);
        }
        Ctx.equal(Set.of("other"), found(p, other, "order-1", begin), "found in the other topic");
        Ctx.equal(Set.of(), found(p, topic, "nobody", begin), "found by a key nobody used");
        for (int i = 0; i < 12; i++) {
            String offsetId = Compat.offsetId(sent.get(i));
            MessageExt byOffset = Compat.viewByOffsetId(p, topic, offsetId);
            Ctx.equal("m" + i, Ctx.text(byOffset), "found by offset id");
            Ctx.equal(offsetId, Compat.offsetId(byOffset), "offset id of the found message");
            MessageExt byId = Compat.viewByUniqueId(p, topic, sent.get(i).getMsgId());
            if (byId != null) {
                Ctx.equal("m" + i, Ctx.text(byId), "found by unique id");
            }
        }
    }

    static Set<String> found(DefaultMQProducer p, String topic, String key, long begin) {
        Set<String> bodies = new HashSet<>();
        try {
            for (MessageExt m : p.queryMessage(topic, key, 32, begin, System.currentTimeMillis() + 60_000)
                .getMessageList()) {
                bodies.add(Ctx.text(m));
            }
        } catch (MQClientException e) {
            // "no message" is an exception of this client
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return bodies;
    }
}
