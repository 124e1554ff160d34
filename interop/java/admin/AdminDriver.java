package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs the real mqadmin commands one after the other in one process, and keeps clients alive for them to see.
 *
 * <p>Input lines are words separated by tabs; answers are {@code @out BASE64-OF-OUTPUT}. The first word says what:
 * {@code admin COMMAND ...}, {@code send TOPIC PRODUCER-GROUP TAG KEY BODY QUEUE} (answers "MSGID OFFSETID QUEUE
 * OFFSET"), {@code consume TOPIC GROUP} (starts a member that takes everything), {@code consumed} (how many it
 * took), {@code close} (ends the producer and the member).
 */
public final class AdminDriver {
    private static DefaultMQProducer producer;
    private static DefaultMQPushConsumer consumer;
    private static int consumed;

    private AdminDriver() {
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", args[0]);
        PrintStream answers = System.out;
        ExecutorService worker = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r, "command");
            t.setDaemon(true);
            return t;
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(bytes, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            Future<?> done = worker.submit(() -> perform(args[0], words, out));
            try {
                done.get(60, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                out.print("\nAdminDriver: the command did not end in 60 s");
            }
            answers.println("@out " + Base64.getEncoder().encodeToString(bytes.toByteArray()));
            answers.flush();
        }
        System.exit(0);
    }

    private static void perform(String namesrv, String[] words, PrintStream out) {
        try {
            switch (words[0]) {
                case "admin" -> MQAdminStartup.main0(Arrays.copyOfRange(words, 1, words.length), null);
                case "send" -> send(namesrv, words, out);
                case "consume" -> consume(namesrv, words);
                case "consumed" -> out.print(consumed());
                case "close" -> close();
                default -> out.print("AdminDriver: unknown word " + words[0]);
            }
        } catch (Exception e) {
            e.printStackTrace(out);
        }
    }

    private static void send(String namesrv, String[] words, PrintStream out) throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer(words[2]);
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("fixture-producer");
            producer.start();
        }
        Message m = new Message(words[1], words[3], words[4], words[5].getBytes(StandardCharsets.UTF_8));
        SendResult r = producer.send(m, (queues, message, arg) -> queues.get((Integer) arg), Integer.valueOf(words[6]));
        out.printf("%s %s %d %d", r.getMsgId(), r.getOffsetMsgId(), r.getMessageQueue().getQueueId(),
            r.getQueueOffset());
    }

    private static void consume(String namesrv, String[] words) throws Exception {
        consumer = new DefaultMQPushConsumer(words[2]);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("fixture-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.subscribe(words[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (msgs, context) -> {
            took(msgs.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static synchronized void took(int n) {
        consumed += n;
    }

    private static synchronized int consumed() {
        return consumed;
    }

    private static void close() {
        if (consumer != null) {
            consumer.shutdown();
        }
        if (producer != null) {
            producer.shutdown();
        }
        consumer = null;
        producer = null;
    }
}
