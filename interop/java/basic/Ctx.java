package interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What one scenario works with: names nobody else uses, clients that are closed at its end, and checks that say
 * what was expected and what came.
 *
 * <p>Every client gets an instance name of its own, so that two members of one group can live in one process.
 */
final class Ctx implements AutoCloseable {
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    final String namesrv;
    final String name;
    private final Map<String, String> args;
    private final List<Runnable> closers = Collections.synchronizedList(new ArrayList<>());
    private volatile String note = "";

    Ctx(String namesrv, String name, Map<String, String> args) {
        this.namesrv = namesrv;
        this.name = name;
        this.args = args;
    }

    String arg(String key) {
        return Objects.requireNonNull(args.get(key), () -> "scenario " + name + " needs " + key + "=...");
    }

    String arg(String key, String otherwise) {
        return args.getOrDefault(key, otherwise);
    }

    /** A topic name of this scenario in this run. */
    String topic(String suffix) {
        return arg("prefix") + "-" + name + (suffix.isEmpty() ? "" : "-" + suffix);
    }

    /** A group name of this scenario in this run. */
    String group(String suffix) {
        return "g-" + topic(suffix);
    }

    /** Shown beside the result. */
    void note(String text) {
        note = text;
    }

    String note() {
        return note;
    }

    void onClose(Runnable closer) {
        closers.add(closer);
    }

    @Override
    public void close() {
        List<Runnable> all = new ArrayList<>(closers);
        Collections.reverse(all);
        for (Runnable closer : all) {
            try {
                closer.run();
            } catch (RuntimeException e) {
                System.err.println(name + ": while closing: " + e);
            }
        }
    }

    static String instance() {
        return "i" + INSTANCES.incrementAndGet() + "-" + ProcessHandle.current().pid();
    }

    // ---- clients -------------------------------------------------------------------------------------------

    DefaultMQProducer producer() throws Exception {
        return producer("");
    }

    DefaultMQProducer producer(String suffix) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("p-" + topic(suffix));
        p.setNamesrvAddr(namesrv);
        p.setInstanceName(instance());
        p.setSendMsgTimeout(15_000);
        p.setMaxMessageSize(16 * 1024 * 1024);
        Compat.quick(p);
        p.start();
        onClose(p::shutdown);
        return p;
    }

    /** A topic with this many queues, visible to clients when this returns. */
    String createTopic(DefaultMQProducer p, String suffix, int queues) throws Exception {
        String topic = topic(suffix);
        Compat.createTopic(p, topic, queues);
        until(30, "route of the new topic " + topic, () -> {
            try {
                return p.fetchPublishMessageQueues(topic).size() == queues;
            } catch (Exception e) {
                return false;
            }
        });
        return topic;
    }

    /** A push consumer that has not been started. */
    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        c.setNamesrvAddr(namesrv);
        c.setInstanceName(instance());
        Compat.quick(c);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(2);
        c.setConsumeThreadMax(4);
        return c;
    }

    void start(DefaultMQPushConsumer c) throws Exception {
        c.start();
        onClose(c::shutdown);
    }

    DefaultMQPullConsumer pull(String group) throws Exception {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(group);
        c.setNamesrvAddr(namesrv);
        c.setInstanceName(instance());
        Compat.quick(c);
        c.start();
        onClose(c::shutdown);
        return c;
    }

    /** All messages of one queue from an offset on, by plain pulls, until the queue's end. */
    List<MessageExt> drain(DefaultMQPullConsumer c, MessageQueue mq, long from) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        long next = from;
        long deadline = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < deadline) {
            PullResult r = c.pull(mq, "*", next, 32);
            if (r.getPullStatus() == PullStatus.FOUND) {
                got.addAll(r.getMsgFoundList());
            } else if (r.getPullStatus() == PullStatus.NO_NEW_MSG) {
                return got;
            }
            if (r.getPullStatus() != PullStatus.FOUND && r.getNextBeginOffset() == next) {
                return got;
            }
            next = r.getNextBeginOffset();
        }
        throw new AssertionError("draining " + mq + " from " + from + " did not end in 60 s, at " + next);
    }

    /** All messages of a topic, waiting until so many are there. */
    List<MessageExt> drainTopic(DefaultMQPullConsumer c, String topic, int expected) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        for (int attempt = 0; attempt < 50; attempt++) {
            got.clear();
            for (MessageQueue mq : c.fetchSubscribeMessageQueues(topic)) {
                got.addAll(drain(c, mq, Math.max(0, c.minOffset(mq))));
            }
            if (got.size() >= expected) {
                break;
            }
            Thread.sleep(100);
        }
        equal(expected, got.size(), "messages readable in " + topic);
        return got;
    }

    static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, utf8(body));
    }

    static byte[] utf8(String s) {
        return s.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }

    static String text(MessageExt m) {
        return new String(m.getBody(), java.nio.charset.StandardCharsets.UTF_8);
    }

    // ---- checks --------------------------------------------------------------------------------------------

    static void that(boolean right, Supplier<String> message) {
        if (!right) {
            throw new AssertionError(message.get());
        }
    }

    static void equal(Object expected, Object came, String what) {
        if (!Objects.equals(expected, came)) {
            throw new AssertionError(what + ": expected " + shorten(expected) + ", came " + shorten(came));
        }
    }

    static void equal(long expected, long came, String what) {
        if (expected != came) {
            throw new AssertionError(what + ": expected " + expected + ", came " + came);
        }
    }

    private static String shorten(Object o) {
        String s = String.valueOf(o);
        return s.length() <= 300 ? s : s.substring(0, 300) + "... (" + s.length() + " characters)";
    }

    void until(int seconds, String what, BooleanSupplier done) throws InterruptedException {
        until(seconds, () -> what, done);
    }

    /** Waits for something another thread does; the text is asked for only when it did not happen. */
    void until(int seconds, Supplier<String> what, BooleanSupplier done) throws InterruptedException {
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + seconds + " s: " + what.get());
            }
            Thread.sleep(20);
        }
    }

    static Map<String, Integer> counts(Iterable<String> items) {
        Map<String, Integer> counts = new HashMap<>();
        for (String item : items) {
            counts.merge(item, 1, Integer::sum);
        }
        return counts;
    }
}
