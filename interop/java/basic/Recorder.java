package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageExt;

/** What members of a group received: by body, by member, in order. One lock; safe from any thread. */
final class Recorder {
    record Got(String member, int queue, long offset, String body, long atMs, long storedMs, int reconsumed) {
    }

    private final List<Got> all = new ArrayList<>();
    private final Map<String, Integer> byBody = new HashMap<>();

    synchronized void add(String member, MessageExt m) {
        String body = Ctx.text(m);
        all.add(new Got(member, m.getQueueId(), m.getQueueOffset(), body, System.currentTimeMillis(),
            m.getStoreTimestamp(), m.getReconsumeTimes()));
        byBody.merge(body, 1, Integer::sum);
    }

    synchronized int distinct() {
        return byBody.size();
    }

    synchronized int total() {
        return all.size();
    }

    synchronized int times(String body) {
        return byBody.getOrDefault(body, 0);
    }

    synchronized List<Got> all() {
        return new ArrayList<>(all);
    }

    synchronized List<Got> of(String member) {
        return all.stream().filter(g -> g.member().equals(member)).toList();
    }

    /** Queues from which a member received anything after a moment. */
    synchronized Set<Integer> queues(String member, long sinceMs) {
        Set<Integer> queues = new TreeSet<>();
        for (Got g : all) {
            if (g.member().equals(member) && g.atMs() >= sinceMs) {
                queues.add(g.queue());
            }
        }
        return queues;
    }

    /** Names what is missing of prefix0 .. prefix(n-1). */
    synchronized void checkAll(String prefix, int n) {
        List<String> missing = new ArrayList<>();
        Set<String> expected = new HashSet<>();
        for (int i = 0; i < n; i++) {
            expected.add(prefix + i);
            if (!byBody.containsKey(prefix + i)) {
                missing.add(prefix + i);
            }
        }
        Ctx.that(missing.isEmpty(), () -> missing.size() + " of " + n + " messages never came, first: "
            + missing.subList(0, Math.min(5, missing.size())));
        for (String body : byBody.keySet()) {
            Ctx.that(expected.contains(body), () -> "a message came that was not sent: " + body);
        }
    }

    /** In each queue, what is seen for the first time is seen in the order of offsets. */
    synchronized void checkOrder() {
        Map<Integer, Long> highest = new HashMap<>();
        Set<String> seen = new HashSet<>();
        for (Got g : all) {
            if (!seen.add(g.queue() + "@" + g.offset())) {
                continue;
            }
            long before = highest.getOrDefault(g.queue(), -1L);
            Ctx.that(g.offset() == before + 1, () -> "queue " + g.queue() + ": offset " + g.offset()
                + " came after " + before + " (member " + g.member() + ")");
            highest.put(g.queue(), g.offset());
        }
    }
}
