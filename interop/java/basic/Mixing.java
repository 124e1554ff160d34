package interop;

import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * One client writes, clients of other versions and languages read. Every client keeps the same contract:
 * topic {@code topic=...}, 40 messages, number i with body "mix-i" (every fourth padded over 4 KiB, so that it
 * is compressed: with zlib, or with codec=LZ4 or ZSTD where the client can), tag "even"/"odd", key "key-i",
 * property "名字"="值-i".
 */
final class Mixing {
    static final int COUNT = 40;

    private Mixing() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("mix-produce", Mixing::produce);
        all.put("mix-consume", Mixing::consume);
    }

    static String body(int i) {
        return "mix-" + i + (i % 4 == 0 ? " padded".repeat(1000) : "");
    }

    static void produce(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer(ctx.arg("topic"));
        String topic = ctx.arg("topic");
        Ctx.that(Compat.setCompression(p, ctx.arg("codec", "ZLIB")), () -> "no such compression");
        Compat.createTopic(p, topic, 4);
        ctx.until(30, "route of " + topic, () -> {
            try {
                return p.fetchPublishMessageQueues(topic).size() == 4;
            } catch (Exception e) {
                return false;
            }
        });
        for (int i = 0; i < COUNT; i++) {
            Message m = Ctx.message(topic, i % 2 == 0 ? "even" : "odd", "key-" + i, body(i));
            m.putUserProperty("名字", "值-" + i);
            Sending.ok(p.send(m));
        }
    }

    static void consume(Ctx ctx) throws Exception {
        String topic = ctx.arg("topic");
        Recorder rec = new Recorder();
        StringBuffer wrong = new StringBuffer();
        DefaultMQPushConsumer c = ctx.push("g-" + topic + "-" + ctx.arg("as"));
        c.subscribe(topic, "even || odd");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            msgs.forEach(m -> {
                String text = Ctx.text(m);
                int i = Integer.parseInt(text.substring(4).split(" ")[0]);
                if (!text.equals(body(i)) || !("key-" + i).equals(m.getKeys())
                    || !(i % 2 == 0 ? "even" : "odd").equals(m.getTags())
                    || !("值-" + i).equals(m.getProperty("名字"))) {
                    wrong.append(" number ").append(i).append(": tag ").append(m.getTags()).append(" keys ")
                        .append(m.getKeys()).append(" property ").append(m.getProperty("名字"));
                }
                rec.add("A", m);
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ctx.start(c);
        ctx.until(40, () -> rec.distinct() + " of " + COUNT + " received", () -> rec.distinct() == COUNT);
        Thread.sleep(300);
        Ctx.equal(COUNT, rec.total(), "deliveries");
        Ctx.that(wrong.isEmpty(), () -> "came back different:" + wrong);
    }
}
