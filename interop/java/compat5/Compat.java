package interop;

import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Where the 5.x client's API differs from the older ones. */
final class Compat {
    private Compat() {
    }

    static void scenarios(Map<String, Main.Scenario> all) {
        Sending.register(all);
        Consuming.register(all);
        Timing.register(all);
        Reading.register(all);
        Mixing.register(all);
        Surviving.register(all);
        Newer.register(all);
        Newest.register(all);
        Stores.register(all);
    }

    static void createTopic(DefaultMQProducer p, String topic, int queues) throws Exception {
        p.createTopic("TBW102", topic, queues, null);
    }

    /**
     * A client whose first heartbeat meets its first rebalance can be told "subscription is not latest" until its
     * next heartbeat, and learns of its retry topic at its next route round: 30 s each by default, too long here.
     */
    static void quick(ClientConfig c) {
        c.setHeartbeatBrokerInterval(4000);
        c.setPollNameServerInterval(4000);
    }

    static void persist(DefaultMQPullConsumer c, MessageQueue mq) {
        c.getOffsetStore().persist(mq);
    }

    static void broadcast(DefaultMQPushConsumer c) {
        c.setMessageModel(MessageModel.BROADCASTING);
    }

    static void maxReconsumeTimes(DefaultMQPushConsumer c, int times) {
        c.setMaxReconsumeTimes(times);
    }

    static boolean setCompression(DefaultMQProducer p, String kind) {
        p.setCompressType(CompressionType.of(kind));
        return true;
    }

    static String offsetId(SendResult r) {
        return r.getOffsetMsgId();
    }

    static String offsetId(MessageExt m) {
        return ((org.apache.rocketmq.common.message.MessageClientExt) m).getOffsetMsgId();
    }

    static MessageExt viewByOffsetId(DefaultMQProducer p, String topic, String id) throws Exception {
        return p.viewMessage(topic, id);
    }

    static MessageExt viewByUniqueId(DefaultMQProducer p, String topic, String id) throws Exception {
        return p.viewMessage(topic, id);
    }
}
