package interop;

import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** What only 5.x clients know: other compressions, delays to the millisecond, recall, pop consumption. */
final class Newest {
    private Newest() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("send-lz4", ctx -> Sending.compressed(ctx, "LZ4"));
        all.put("send-zstd", ctx -> Sending.compressed(ctx, "ZSTD"));
        all.put("timer", Newest::timer);
        all.put("recall", Newest::recall);
        all.put("pop", Newest::pop);
    }

    /** Delays in milliseconds and to a moment: never early (in the timer's whole seconds), soon after, once. */
    static void timer(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        Recorder rec = new Recorder();
        ctx.start(Consuming.member(ctx, ctx.group(""), topic, "*", "A", rec, false));
        Sending.ok(p.send(Ctx.message(topic, "", "", "past")));
        ctx.until(40, "the message without delay", () -> rec.times("past") == 1);
        long[] due = new long[4];
        for (int i = 0; i < 4; i++) {
            Message m = Ctx.message(topic, "", "key" + i, "timer" + i);
            due[i] = System.currentTimeMillis() + 2000 + i * 1500;
            if (i % 2 == 0) {
                m.setDelayTimeMs(2000 + i * 1500);
            } else {
                m.setDeliverTimeMs(due[i]);
            }
            Sending.ok(p.send(m));
        }
        ctx.until(25, () -> rec.distinct() + " of 5", () -> rec.distinct() == 5);
        long worst = 0;
        for (Recorder.Got g : rec.all()) {
            if (g.body().startsWith("timer")) {
                long at = due[g.body().charAt(5) - '0'];
                // The original's wheel counts whole seconds and delivers in the second before the due one.
                Ctx.that(g.atMs() >= at - 1100, () -> g.body() + " came " + (at - g.atMs()) + " ms early");
                Ctx.that(g.atMs() <= at + 3000, () -> g.body() + " came " + (g.atMs() - at) + " ms late");
                worst = Math.max(worst, g.atMs() - at);
            }
        }
        Ctx.equal(5, rec.total(), "deliveries");
        ctx.note("at most " + worst + " ms late");
    }

    static void recall(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        Recorder rec = new Recorder();
        ctx.start(Consuming.member(ctx, ctx.group(""), topic, "*", "A", rec, false));
        String handle = null;
        for (String body : new String[] {"taken-back", "kept"}) {
            Message m = Ctx.message(topic, "", "", body);
            m.setDelayTimeMs(8000);
            SendResult r = p.send(m);
            Sending.ok(r);
            if (body.equals("taken-back")) {
                handle = r.getRecallHandle();
            }
        }
        Ctx.that(handle != null, () -> "no recall handle in the answer");
        p.recallMessage(topic, handle);
        ctx.until(30, "the message that was kept", () -> rec.times("kept") == 1);
        Thread.sleep(2500);
        Ctx.equal(0, rec.times("taken-back"), "deliveries of the recalled message");
    }

    /** The group's mode at the broker is POP: its members take messages without owning queues. */
    static void pop(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.arg("topic");
        Recorder rec = new Recorder();
        for (String name : new String[] {"A", "B"}) {
            DefaultMQPushConsumer c = Consuming.member(ctx, ctx.arg("group"), topic, "*", name, rec, false);
            c.setClientRebalance(false);
            ctx.start(c);
        }
        for (int i = 0; i < 60; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        ctx.until(60, () -> rec.distinct() + " of 60", () -> rec.distinct() == 60);
        Thread.sleep(1000);
        rec.checkAll("m", 60);
        Ctx.that(rec.total() <= 60, () -> (rec.total() - 60) + " came twice");
        ctx.note("A " + rec.of("A").size() + ", B " + rec.of("B").size());
    }
}
