package interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Push consumption of a group whose members come and go. */
final class Consuming {
    private Consuming() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("consume-concurrent", ctx -> rebalance(ctx, false));
        all.put("consume-orderly", ctx -> rebalance(ctx, true));
        all.put("consume-orderly-suspend", Consuming::orderlySuspend);
        all.put("consume-broadcast", Consuming::broadcast);
        all.put("consume-tags", Consuming::tags);
        all.put("consume-resume", Consuming::resume);
    }

    static DefaultMQPushConsumer member(Ctx ctx, String group, String topic, String tags, String name, Recorder rec,
        boolean orderly) throws Exception {
        DefaultMQPushConsumer c = ctx.push(group);
        c.subscribe(topic, tags);
        if (orderly) {
            c.registerMessageListener((MessageListenerOrderly) (msgs, context) -> {
                msgs.forEach(m -> rec.add(name, m));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
                msgs.forEach(m -> rec.add(name, m));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        return c;
    }

    /**
     * A producer sends all the time; A is alone, B joins, both share the queues, A leaves, B has them all.
     * Nothing is lost, each queue's order holds in orderly mode, and the joining is noticed by the server's
     * notice, not only by the clients' own 20-second round.
     */
    static void rebalance(Ctx ctx, boolean orderly) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 8);
        String group = ctx.group("");
        AtomicBoolean sending = new AtomicBoolean(true);
        AtomicInteger sent = new AtomicInteger();
        AtomicInteger failures = new AtomicInteger();
        Thread sender = new Thread(() -> {
            while (sending.get()) {
                int i = sent.get();
                try {
                    Sending.ok(p.send(Ctx.message(topic, "", "k" + i, "m" + i), (qs, m, arg) -> qs.get(i % 8), null));
                    sent.incrementAndGet();
                    Thread.sleep(8);
                } catch (Exception | AssertionError e) {
                    failures.incrementAndGet();
                    System.err.println(ctx.name + ": send: " + e);
                }
            }
        });
        sender.setDaemon(true);
        Recorder rec = new Recorder();
        DefaultMQPushConsumer a = member(ctx, group, topic, "*", "A", rec, orderly);
        ctx.start(a);
        sender.start();
        try {
            ctx.until(30, "A alone receives from all 8 queues", () -> rec.queues("A", 0).size() == 8);
            DefaultMQPushConsumer b = member(ctx, group, topic, "*", "B", rec, orderly);
            long joined = System.currentTimeMillis();
            ctx.start(b);
            // An orderly queue with messages in hand is unlocked 20 s later by the leaving owner.
            ctx.until(orderly ? 50 : 15, () -> "B receives from 4 queues, has " + rec.queues("B", joined),
                () -> rec.queues("B", joined).size() == 4);
            long shared = System.currentTimeMillis();
            ctx.until(30, () -> "disjoint halves, A has " + rec.queues("A", shared) + " B has "
                + rec.queues("B", shared), () -> halves(rec, shared));
            ctx.note("B had its half after " + (shared - joined) + " ms");
            long left = System.currentTimeMillis();
            a.shutdown();
            ctx.until(50, () -> "B receives from all 8 queues, has " + rec.queues("B", left),
                () -> rec.queues("B", left).size() == 8);
            long took = System.currentTimeMillis() - left;
            sending.set(false);
            sender.join();
            ctx.until(60, () -> rec.distinct() + " of " + sent.get() + " received",
                () -> rec.distinct() >= sent.get());
            ctx.note(ctx.note() + ", all after " + took + " ms; " + sent.get() + " sent, "
                + (rec.total() - rec.distinct()) + " twice");
        } finally {
            sending.set(false);
        }
        Ctx.equal(0, failures.get(), "failed sends");
        rec.checkAll("m", sent.get());
        if (orderly) {
            rec.checkOrder();
        }
        // A queue that moves may repeat what was not committed yet: at most 5 s of it, twice.
        Ctx.that(rec.total() - rec.distinct() <= sent.get() / 2, () -> (rec.total() - rec.distinct()) + " of "
            + sent.get() + " came twice");
    }

    /** True when, since that moment, both members received and no queue went to both. */
    private static boolean halves(Recorder rec, long since) {
        Set<Integer> a = rec.queues("A", since + 500);
        Set<Integer> b = rec.queues("B", since + 500);
        Set<Integer> both = new TreeSet<>(a);
        both.retainAll(b);
        return both.isEmpty() && a.size() + b.size() == 8;
    }

    /** A listener that asks for a moment gets the same message again, and nothing behind it before that. */
    static void orderlySuspend(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        for (int i = 0; i < 10; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        Recorder rec = new Recorder();
        AtomicInteger refusals = new AtomicInteger();
        DefaultMQPushConsumer c = ctx.push(ctx.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (msgs, context) -> {
            if (Ctx.text(msgs.get(0)).equals("m4") && refusals.incrementAndGet() <= 3) {
                context.setSuspendCurrentQueueTimeMillis(300);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            msgs.forEach(m -> rec.add("A", m));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        ctx.start(c);
        ctx.until(30, () -> rec.distinct() + " of 10 received", () -> rec.distinct() == 10);
        rec.checkOrder();
        Ctx.equal(4, refusals.get(), "deliveries of the refused message");
        Ctx.equal(10, rec.total(), "messages taken");
    }

    /** Each member of a broadcasting group gets everything, once. */
    static void broadcast(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 4);
        String group = ctx.group("");
        Recorder rec = new Recorder();
        for (String name : List.of("A", "B")) {
            DefaultMQPushConsumer c = member(ctx, group, topic, "*", name, rec, false);
            Compat.broadcast(c);
            ctx.start(c);
        }
        for (int i = 0; i < 40; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        ctx.until(45, () -> "A has " + rec.of("A").size() + ", B has " + rec.of("B").size() + " of 40",
            () -> rec.of("A").size() >= 40 && rec.of("B").size() >= 40);
        rec.checkAll("m", 40);
        Ctx.equal(40, rec.of("A").size(), "messages of member A");
        Ctx.equal(40, rec.of("B").size(), "messages of member B");
    }

    /** Tags choose by text, also where two tags have the same hash ("Aa" and "BB"). */
    static void tags(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        String[] tags = {"A", "B", "C", "Aa", "BB", "", "标签"};
        for (int i = 0; i < 70; i++) {
            String tag = tags[i % 7];
            Message m = tag.isEmpty() ? new Message(topic, Ctx.utf8("none-" + i))
                : Ctx.message(topic, tag, "", tag + "-" + i);
            Sending.ok(p.send(m));
        }
        Map<String, Integer> expected = new HashMap<>();
        expected.put("A || B", 20);
        expected.put("Aa", 10);
        expected.put("BB", 10);
        expected.put("标签||C", 20);
        expected.put("*", 70);
        expected.put("nobody", 0);
        Map<String, Recorder> got = new HashMap<>();
        int n = 0;
        for (String expression : expected.keySet()) {
            Recorder rec = new Recorder();
            got.put(expression, rec);
            ctx.start(member(ctx, ctx.group("f" + n++), topic, expression, "A", rec, false));
        }
        for (Map.Entry<String, Integer> e : expected.entrySet()) {
            Recorder rec = got.get(e.getKey());
            ctx.until(30, () -> "'" + e.getKey() + "' got " + rec.total() + " of " + e.getValue(),
                () -> rec.total() >= e.getValue());
        }
        Thread.sleep(500); // what should not come gets the time to come
        for (Map.Entry<String, Integer> e : expected.entrySet()) {
            Ctx.equal(e.getValue(), (Integer) got.get(e.getKey()).total(), "messages for '" + e.getKey() + "'");
        }
        for (Recorder.Got g : got.get("Aa").all()) {
            Ctx.that(g.body().startsWith("Aa-"), () -> "'Aa' received " + g.body());
        }
    }

    /** A group that comes back continues where it stopped; nothing again, nothing left out. */
    static void resume(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 4);
        String group = ctx.group("");
        for (int i = 0; i < 100; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        Recorder rec = new Recorder();
        DefaultMQPushConsumer first = member(ctx, group, topic, "*", "A", rec, false);
        ctx.start(first);
        ctx.until(30, () -> rec.distinct() + " of the first 100", () -> rec.distinct() == 100);
        Thread.sleep(300); // the listener's return must reach the position table before the shutdown commits it
        first.shutdown();
        for (int i = 100; i < 200; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        ctx.start(member(ctx, group, topic, "*", "B", rec, false));
        ctx.until(30, () -> rec.distinct() + " of 200", () -> rec.distinct() == 200);
        Thread.sleep(500);
        rec.checkAll("m", 200);
        Ctx.equal(100, rec.of("B").size(), "messages of the second member");
        for (Recorder.Got g : rec.of("B")) {
            Ctx.that(Integer.parseInt(g.body().substring(1)) >= 100, () -> "came again: " + g.body());
        }
    }
}
