package interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** Clients that live through a restart of the server; the runner restarts it and then makes the file "until=...". */
final class Surviving {
    private Surviving() {
    }

    static void register(Map<String, Main.Scenario> all) {
        all.put("survive", Surviving::survive);
    }

    /**
     * A producer and a member run all the time. Every acknowledged message comes, at the place its answer named,
     * no place holds two messages, and both clients work again after the restart without being restarted.
     */
    static void survive(Ctx ctx) throws Exception {
        DefaultMQProducer p = ctx.producer(ctx.arg("label"));
        String topic = ctx.createTopic(p, ctx.arg("label"), 4);
        Recorder rec = new Recorder();
        ctx.start(Consuming.member(ctx, ctx.group(ctx.arg("label")), topic, "*", "A", rec, false));
        Path until = Path.of(ctx.arg("until"));
        Map<String, String> acknowledged = new HashMap<>();
        int refused = 0;
        long longest = 0;
        long lastSuccess = System.currentTimeMillis();
        long end = Long.MAX_VALUE;
        for (int i = 0; System.currentTimeMillis() < end; i++) {
            if (end == Long.MAX_VALUE && Files.exists(until)) {
                end = System.currentTimeMillis() + 4000;
            }
            try {
                SendResult r = p.send(Ctx.message(topic, "", "k" + i, "m" + i), 2000);
                Sending.ok(r);
                String place = r.getMessageQueue().getQueueId() + "@" + r.getQueueOffset();
                String before = acknowledged.put(place, "m" + i);
                String now = "m" + i;
                Ctx.that(before == null, () -> "queue@offset " + place + " was given to " + before + " and to " + now);
                long success = System.currentTimeMillis();
                longest = Math.max(longest, success - lastSuccess);
                lastSuccess = success;
                Thread.sleep(5);
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                refused++;
                Thread.sleep(50);
            }
        }
        Ctx.that(System.currentTimeMillis() - lastSuccess < 3000, () -> "no send succeeded after the restart");
        ctx.until(60, () -> missing(acknowledged, rec) + " (of " + acknowledged.size() + " acknowledged)",
            () -> missing(acknowledged, rec).isEmpty());
        Map<String, String> places = new HashMap<>();
        for (Recorder.Got g : rec.all()) {
            String place = g.queue() + "@" + g.offset();
            String before = places.put(place, g.body());
            Ctx.that(before == null || before.equals(g.body()), () -> place + " held " + before + " and " + g.body());
            String named = acknowledged.get(place);
            Ctx.that(named == null || named.equals(g.body()), () -> place + " was given to " + named + " and holds "
                + g.body());
        }
        ctx.note(acknowledged.size() + " acknowledged, " + refused + " sends failed, " + (rec.total() - rec.distinct())
            + " came twice, longest gap " + longest + " ms");
    }

    private static List<String> missing(Map<String, String> acknowledged, Recorder rec) {
        List<String> missing = new ArrayList<>();
        for (String body : acknowledged.values()) {
            if (rec.times(body) == 0) {
                missing.add(body);
                if (missing.size() == 5) {
                    break;
                }
            }
        }
        return missing;
    }
}
