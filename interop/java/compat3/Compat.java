package interop;

import com.alibaba.rocketmq.client.ClientConfig;
import com.alibaba.rocketmq.client.consumer.DefaultMQPullConsumer;
import com.alibaba.rocketmq.client.consumer.DefaultMQPushConsumer;
import com.alibaba.rocketmq.client.producer.DefaultMQProducer;
import com.alibaba.rocketmq.client.producer.SendResult;
import com.alibaba.rocketmq.common.message.MessageExt;
import com.alibaba.rocketmq.common.message.MessageQueue;
import com.alibaba.rocketmq.common.protocol.heartbeat.MessageModel;
import java.util.Map;

/** Where the 3.2.6 client's API differs from the later ones. */
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
    }

    static void createTopic(DefaultMQProducer p, String topic, int queues) throws Exception {
        p.createTopic("TBW102", topic, queues);
    }

    /**
     * A client whose first heartbeat meets its first rebalance can be told "subscription is not latest" until its
     * next heartbeat, and learns of its retry topic at its next route round: 30 s each by default, too long here.
     */
    static void quick(ClientConfig c) {
        c.setHeartbeatBrokerInterval(4000);
        c.setPollNameServerInteval(4000);
    }

    static void persist(DefaultMQPullConsumer c, MessageQueue mq) {
        c.getDefaultMQPullConsumerImpl().getOffsetStore().persist(mq);
    }

    static void broadcast(DefaultMQPushConsumer c) {
        c.setMessageModel(MessageModel.BROADCASTING);
    }

    /** The old client leaves this to the group's settings at the broker; the runner makes the group so. */
    static void maxReconsumeTimes(DefaultMQPushConsumer c, int times) {
    }

    static boolean setCompression(DefaultMQProducer p, String kind) {
        return kind.equals("ZLIB");
    }

    /** The old client knows only the offset id. */
    static String offsetId(SendResult r) {
        return r.getMsgId();
    }

    static String offsetId(MessageExt m) {
        return m.getMsgId();
    }

    static MessageExt viewByOffsetId(DefaultMQProducer p, String topic, String id) throws Exception {
        return p.viewMessage(id);
    }

    static MessageExt viewByUniqueId(DefaultMQProducer p, String topic, String id) {
        return null;
    }
}
