package interop;

import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Retries, dead letters, delays, and where a new group begins. */
final class Timing {
    private Timing() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("retry", Timing::retry);
        all.put("dlq", Timing::dlq);
        all.put("delay", Timing::delay);
        all.put("from-where", Timing::fromWhere);
        all.put("from-where-young", Timing::fromWhereYoung);
    }

    /** Every second message fails once at level 1 (1 s) and one fails at the default level (10 s); all succeed. */
    static void retry(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        Recorder failed = new Recorder();
        Recorder rec = new Recorder();
        DefaultMQPushConsumer c = ctx.push(ctx.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            MessageExt m = msgs.get(0);
            int i = Integer.parseInt(Ctx.text(m).substring(1));
            if (i % 2 == 0 && failed.times(Ctx.text(m)) == 0) {
                failed.add("A", m);
                context.setDelayLevelWhenNextConsume(i == 0 ? 0 : 1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            rec.add("A", m);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ctx.start(c);
        String[] ids = new String[20];
        for (int i = 0; i < 20; i++) {
            Message m = Ctx.message(topic, "tag" + i, "key" + i, "m" + i);
            m.putUserProperty("名字", "值" + i);
            SendResult r = p.send(m);
            Sending.ok(r);
            ids[i] = r.getMsgId();
        }
        ctx.until(40, () -> rec.distinct() + " of 20 succeeded", () -> rec.distinct() == 20);
        rec.checkAll("m", 20);
        Ctx.equal(20, rec.total(), "successes");
        for (Recorder.Got g : rec.all()) {
            int i = Integer.parseInt(g.body().substring(1));
            Ctx.equal(i % 2 == 0 ? 1 : 0, g.reconsumed(), "reconsume times of " + g.body());
        }
        long first = failed.all().stream().filter(g -> g.body().equals("m0")).findFirst().orElseThrow().atMs();
        long again = rec.all().stream().filter(g -> g.body().equals("m0")).findFirst().orElseThrow().storedMs();
        long wait = again - first;
        Ctx.that(wait >= 9_900 && wait < 14_000, () -> "the first retry was stored after " + wait
            + " ms, not after 10 s");
        ctx.note("first retry stored after " + wait + " ms");
        Ctx.that(ids[0] != null, () -> "no message id");
    }

    /** A message that always fails ends, once and whole, in the group's dead-letter topic. */
    static void dlq(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        String group = ctx.group("");
        AtomicInteger deliveries = new AtomicInteger();
        Recorder rec = new Recorder();
        DefaultMQPushConsumer c = ctx.push(group);
        Compat.maxReconsumeTimes(c, 1);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            if (Ctx.text(msgs.get(0)).startsWith("bad")) {
                deliveries.incrementAndGet();
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            rec.add("A", msgs.get(0));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ctx.start(c);
        Message bad = Ctx.message(topic, "tagD", "keyD", "bad-0");
        bad.putUserProperty("名字", "值");
        SendResult sent = p.send(bad);
        Sending.ok(sent);
        Sending.ok(p.send(Ctx.message(topic, "", "", "m0")));
        DefaultMQPullConsumer pull = ctx.pull(ctx.group("dlq"));
        String dead = "%DLQ%" + group;
        ctx.until(40, () -> "the dead-letter topic appears (" + deliveries.get() + " deliveries)", () -> {
            try {
                return !ctx.drainTopic(pull, dead, 1).isEmpty();
            } catch (Exception | AssertionError e) {
                pause(300);
                return false;
            }
        });
        MessageExt m = ctx.drainTopic(pull, dead, 1).get(0);
        Ctx.equal("bad-0", Ctx.text(m), "dead body");
        Ctx.equal("tagD", m.getTags(), "dead tag");
        Ctx.equal("keyD", m.getKeys(), "dead key");
        Ctx.equal("值", m.getProperty("名字"), "dead user property");
        Ctx.equal(topic, m.getProperty("RETRY_TOPIC"), "property RETRY_TOPIC");
        Ctx.that(m.getProperty("ORIGIN_MESSAGE_ID") != null, () -> "property ORIGIN_MESSAGE_ID is missing");
        Ctx.equal(2, deliveries.get(), "deliveries (one and one retry)");
        ctx.until(10, "the good message", () -> rec.distinct() == 1);
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Levels 1 (1 s), 2 (5 s): never early, soon after; a level over 18 counts as 18 and does not come. */
    static void delay(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        Recorder rec = new Recorder();
        ctx.start(Consuming.member(ctx, ctx.group(""), topic, "*", "A", rec, false));
        Sending.ok(p.send(Ctx.message(topic, "", "", "now")));
        ctx.until(40, "the message without delay", () -> rec.times("now") == 1);
        int[] levels = {1, 1, 2, 2, 99};
        long[] sentAt = new long[levels.length];
        for (int i = 0; i < levels.length; i++) {
            Message m = Ctx.message(topic, "tag", "key" + i, "level" + levels[i] + "-" + i);
            m.setDelayTimeLevel(levels[i]);
            sentAt[i] = System.currentTimeMillis();
            Sending.ok(p.send(m));
        }
        ctx.until(20, () -> rec.distinct() + " of 5", () -> rec.distinct() == 5);
        long worst = 0;
        for (Recorder.Got g : rec.all()) {
            if (g.body().equals("now")) {
                continue;
            }
            int i = Integer.parseInt(g.body().substring(g.body().indexOf('-') + 1));
            Ctx.that(levels[i] <= 2, () -> "a message of level " + levels[i] + " came at once");
            long due = sentAt[i] + (levels[i] == 1 ? 1000 : 5000);
            Ctx.that(g.atMs() >= due, () -> g.body() + " came " + (due - g.atMs()) + " ms early");
            Ctx.that(g.atMs() <= due + 2500, () -> g.body() + " came " + (g.atMs() - due) + " ms late");
            worst = Math.max(worst, g.atMs() - due);
        }
        Ctx.equal(5, rec.total(), "deliveries");
        ctx.note("at most " + worst + " ms late");
    }

    /** Where new members begin is asked of the server when no position is kept (broadcasting keeps them locally). */
    static void fromWhere(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        for (int i = 0; i < 20; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "old" + i)));
        }
        // Consume timestamps have whole seconds.
        long middle = (System.currentTimeMillis() / 1000 + 2) * 1000;
        ctx.until(10, "the next second", () -> System.currentTimeMillis() > middle + 50);
        for (int i = 0; i < 20; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "mid" + i)));
        }
        Recorder first = new Recorder();
        Recorder last = new Recorder();
        Recorder time = new Recorder();
        begin(ctx, topic, "first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, first, 0);
        begin(ctx, topic, "last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, last, 0);
        begin(ctx, topic, "time", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, time, middle);
        ctx.until(30, () -> "from first: " + first.distinct() + " of 40, from time: " + time.distinct() + " of 20",
            () -> first.distinct() == 40 && time.distinct() == 20);
        Thread.sleep(1500); // "from last" has found its end by now
        for (int i = 0; i < 20; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "new" + i)));
        }
        ctx.until(30, () -> "first " + first.distinct() + " of 60, time " + time.distinct() + " of 40, last "
            + last.distinct() + " of 20",
            () -> first.distinct() == 60 && time.distinct() == 40 && last.distinct() == 20);
        for (Recorder.Got g : last.all()) {
            Ctx.that(g.body().startsWith("new"), () -> "from last received " + g.body());
        }
        for (Recorder.Got g : time.all()) {
            Ctx.that(!g.body().startsWith("old"), () -> "from timestamp received " + g.body());
        }
    }

    private static void begin(Ctx ctx, String topic, String suffix, ConsumeFromWhere where, Recorder rec, long time)
        throws Exception {
        DefaultMQPushConsumer c = Consuming.member(ctx, ctx.group(suffix), topic, "*", "A", rec, false);
        Compat.broadcast(c);
        c.setConsumeFromWhere(where);
        if (time > 0) {
            c.setConsumeTimestamp(new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(time)));
        }
        ctx.start(c);
    }

    /** A new clustering group on a young topic begins at 0 even "from last": the server answers 0, not "none". */
    static void fromWhereYoung(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        for (int i = 0; i < 10; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        for (ConsumeFromWhere where : List.of(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)) {
            Recorder rec = new Recorder();
            DefaultMQPushConsumer c = Consuming.member(ctx, ctx.group(where.name()), topic, "*", "A", rec, false);
            c.setConsumeFromWhere(where);
            ctx.start(c);
            ctx.until(30, () -> where + ": " + rec.distinct() + " of 10", () -> rec.distinct() == 10);
            rec.checkAll("m", 10);
        }
    }
}
