package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What clients since 4.x know: batches, lite pull, transactions, SQL filters, request and reply. */
final class Newer {
    private Newer() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("send-batch", Newer::batch);
        all.put("send-fast-port", Newer::fastPort);
        all.put("lite-assign", Newer::liteAssign);
        all.put("lite-subscribe", Newer::liteSubscribe);
        all.put("transaction", Newer::transaction);
        all.put("sql-filter", Newer::sql);
        all.put("request-reply", Newer::requestReply);
    }

    /** A batch is stored as single messages with neighbouring offsets, each with its own properties. */
    static void batch(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 1);
        int number = 0;
        for (int size : new int[] {10, 1, 32}) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < size; i++, number++) {
                Message m = Ctx.message(topic, "T" + number % 2, "key" + number, "batch-" + number);
                m.putUserProperty("名字", "值" + number);
                batch.add(m);
            }
            SendResult r = p.send(batch);
            Sending.ok(r);
            Ctx.equal(number - size, r.getQueueOffset(), "offset of the batch");
            Ctx.equal(size, r.getMsgId().split(",").length, "ids in the answer to a batch of " + size);
            Ctx.equal(size, r.getOffsetMsgId().split(",").length, "offset ids");
        }
        List<MessageExt> got = ctx.drainTopic(ctx.pull(ctx.group("")), topic, number);
        Set<String> ids = new HashSet<>();
        for (int i = 0; i < number; i++) {
            MessageExt m = got.get(i);
            Ctx.equal("batch-" + i, Ctx.text(m), "body at offset " + i);
            Ctx.equal(i, m.getQueueOffset(), "queue offset");
            Ctx.equal("T" + i % 2, m.getTags(), "tag");
            Ctx.equal("值" + i, m.getProperty("名字"), "user property");
            ids.add(m.getMsgId());
        }
        Ctx.equal(number, ids.size(), "different message ids");
        ctx.until(15, "the key of a message inside a batch", () -> Reading.found(p, topic, "key5", 0)
            .equals(Set.of("batch-5")));
    }

    /** The broker's second port (its port less 2) takes sends too. */
    static void fastPort(Ctx ctx) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("p-" + ctx.topic(""));
        p.setNamesrvAddr(ctx.namesrv);
        p.setInstanceName(Ctx.instance());
        p.setVipChannelEnabled(true);
        p.setRetryTimesWhenSendFailed(0);
        p.start();
        ctx.onClose(p::shutdown);
        String topic = ctx.createTopic(p, "", 1);
        for (int i = 0; i < 10; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i)));
        }
        ctx.drainTopic(ctx.pull(ctx.group("")), topic, 10);
    }

    static DefaultLitePullConsumer lite(Ctx ctx, String suffix) {
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(ctx.group(suffix));
        c.setNamesrvAddr(ctx.namesrv);
        c.setInstanceName(Ctx.instance());
        c.setAutoCommit(false);
        Compat.quick(c);
        c.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return c;
    }

    private static List<String> poll(DefaultLitePullConsumer c, int count, int seconds) {
        List<String> bodies = new ArrayList<>();
        long deadline = System.currentTimeMillis() + seconds * 1000L;
        while (bodies.size() < count && System.currentTimeMillis() < deadline) {
            for (MessageExt m : c.poll(500)) {
                bodies.add(Ctx.text(m));
            }
        }
        return bodies;
    }

    /** Chosen queues, seek to a number, to the begin, the end and a time, commit and come back. */
    static void liteAssign(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        List<Long> times = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            Sending.ok(p.send(Ctx.message(topic, "", "", "m" + i), (qs, m, arg) -> qs.get((Integer) arg), i % 2));
            if (i == 19) {
                Thread.sleep(100);
                times.add(System.currentTimeMillis());
            }
        }
        DefaultLitePullConsumer c = lite(ctx, "");
        c.start();
        ctx.onClose(c::shutdown);
        Collection<MessageQueue> queues = c.fetchMessageQueues(topic);
        Ctx.equal(2, queues.size(), "queues");
        MessageQueue mq = queues.stream().filter(q -> q.getQueueId() == 0).findFirst().orElseThrow();
        c.assign(List.of(mq));
        List<String> even = new ArrayList<>();
        for (int i = 0; i < 40; i += 2) {
            even.add("m" + i);
        }
        // A seek right after assign races with the client's own first pull; so the first reading is without.
        Ctx.equal(even, poll(c, 20, 20), "polled from queue 0");
        c.seekToBegin(mq);
        Ctx.equal(even, poll(c, 20, 20), "polled after seek to the begin");
        c.seek(mq, 15);
        Ctx.equal(even.subList(15, 20), poll(c, 5, 20), "polled after seek 15");
        Ctx.equal(10, (long) c.offsetForTimestamp(mq, times.get(0)), "offset for a time between m19 and m20");
        c.seekToEnd(mq);
        Sending.ok(p.send(Ctx.message(topic, "", "", "new"), mq));
        Ctx.equal(List.of("new"), poll(c, 1, 20), "polled after seek to the end");
        c.commitSync();
        ctx.until(15, "committed position 21", () -> {
            try {
                c.commitSync();
                return c.committed(mq) == 21;
            } catch (Exception e) {
                return false;
            }
        });
    }

    /** A subscribing group of two members shares the queues. */
    static void liteSubscribe(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 4);
        for (int i = 0; i < 40; i++) {
            Sending.ok(p.send(Ctx.message(topic, i % 2 == 0 ? "even" : "odd", "", "m" + i)));
        }
        DefaultLitePullConsumer a = lite(ctx, "");
        DefaultLitePullConsumer b = lite(ctx, "");
        for (DefaultLitePullConsumer c : List.of(a, b)) {
            c.subscribe(topic, "even");
            c.setAutoCommit(true);
            c.start();
            ctx.onClose(c::shutdown);
        }
        ctx.until(40, "each member has 2 of 4 queues", () -> {
            try {
                Set<MessageQueue> both = new HashSet<>(a.assignment());
                both.addAll(b.assignment());
                return a.assignment().size() == 2 && b.assignment().size() == 2 && both.size() == 4;
            } catch (Exception e) {
                return false;
            }
        });
        Set<String> got = ConcurrentHashMap.newKeySet();
        ctx.until(30, () -> got.size() + " of 20", () -> {
            a.poll(200).forEach(m -> got.add(Ctx.text(m)));
            b.poll(200).forEach(m -> got.add(Ctx.text(m)));
            return got.size() >= 20;
        });
        for (String body : got) {
            Ctx.equal(0, Integer.parseInt(body.substring(1)) % 2, "tag chosen: " + body);
        }
    }

    /** Committed messages come once, rolled back ones never, unknown ones are asked back and then come. */
    static void transaction(Ctx ctx) throws Exception {
        DefaultMQProducer plain = ctx.producer();
        String topic = ctx.createTopic(plain, "", 2);
        Recorder rec = new Recorder();
        ctx.start(Consuming.member(ctx, ctx.group(""), topic, "*", "A", rec, false));
        Map<String, Integer> checks = new ConcurrentHashMap<>();
        TransactionMQProducer p = new TransactionMQProducer("tx-" + ctx.topic(""));
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
                return Ctx.text(m).startsWith("asked-commit") ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        p.start();
        ctx.onClose(p::shutdown);
        for (int i = 0; i < 5; i++) {
            Message m = Ctx.message(topic, "t", "key" + i, "commit-" + i);
            m.putUserProperty("名字", "值");
            Sending.ok(p.sendMessageInTransaction(m, LocalTransactionState.COMMIT_MESSAGE));
            Sending.ok(p.sendMessageInTransaction(Ctx.message(topic, "t", "", "rollback-" + i),
                LocalTransactionState.ROLLBACK_MESSAGE));
        }
        ctx.until(20, () -> rec.distinct() + " of 5 committed", () -> rec.distinct() == 5);
        Sending.ok(p.sendMessageInTransaction(Ctx.message(topic, "t", "", "asked-commit"),
            LocalTransactionState.UNKNOW));
        Sending.ok(p.sendMessageInTransaction(Ctx.message(topic, "t", "", "asked-rollback"),
            LocalTransactionState.UNKNOW));
        ctx.until(90, () -> "the message committed by a check; checks " + checks,
            () -> rec.times("asked-commit") == 1 && checks.containsKey("asked-rollback"));
        Thread.sleep(1000);
        for (Recorder.Got g : rec.all()) {
            Ctx.that(g.body().contains("commit"), () -> "a rolled back message came: " + g.body());
        }
        Ctx.equal(6, rec.total(), "deliveries");
    }

    static void sql(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        for (int i = 0; i < 20; i++) {
            Message m = Ctx.message(topic, i % 2 == 0 ? "even" : "odd", "", "m" + i);
            m.putUserProperty("n", String.valueOf(i));
            if (i % 5 == 0) {
                m.putUserProperty("city", "北京");
            }
            Sending.ok(p.send(m));
        }
        Map<String, Set<Integer>> expected = Map.of(
            "n BETWEEN 3 AND 6", Set.of(3, 4, 5, 6),
            "city = '北京' AND TAGS = 'even'", Set.of(0, 10),
            "city IS NULL AND n > 16", Set.of(17, 18, 19),
            "NOT (n < 18) OR n IN ('2')", Set.of(2, 18, 19),
            "n >= 1.5 AND n <= 3", Set.of(2, 3));
        int number = 0;
        List<Runnable> checks = new ArrayList<>();
        for (Map.Entry<String, Set<Integer>> e : expected.entrySet()) {
            Recorder rec = new Recorder();
            DefaultMQPushConsumer c = ctx.push(ctx.group("f" + number++));
            c.subscribe(topic, MessageSelector.bySql(e.getKey()));
            c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
                msgs.forEach(m -> rec.add("A", m));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            ctx.start(c);
            checks.add(() -> {
                Set<Integer> got = new HashSet<>();
                rec.all().forEach(g -> got.add(Integer.parseInt(g.body().substring(1))));
                Ctx.equal(e.getValue(), got, "messages for " + e.getKey());
            });
        }
        ctx.until(30, () -> {
            for (Runnable check : checks) {
                try {
                    check.run();
                } catch (AssertionError e) {
                    return e.getMessage();
                }
            }
            return "";
        }, () -> checks.stream().allMatch(Newer::holds));
        Thread.sleep(500);
        checks.forEach(Runnable::run);
    }

    private static boolean holds(Runnable check) {
        try {
            check.run();
            return true;
        } catch (AssertionError e) {
            return false;
        }
    }

    static void requestReply(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer();
        String topic = ctx.createTopic(p, "", 2);
        DefaultMQProducer replier = ctx.producer("replier");
        DefaultMQPushConsumer c = ctx.push(ctx.group(""));
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            for (MessageExt m : msgs) {
                try {
                    replier.send(MessageUtil.createReplyMessage(m, Ctx.utf8("reply to " + Ctx.text(m))), 5000);
                } catch (Exception e) {
                    System.err.println(ctx.name + ": reply: " + e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ctx.start(c);
        for (int i = 0; i < 3; i++) {
            Message reply = p.request(Ctx.message(topic, "", "", "q" + i), 30_000);
            Ctx.equal("reply to q" + i, new String(reply.getBody()), "reply");
        }
    }
}
