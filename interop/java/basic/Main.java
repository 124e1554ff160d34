package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Phaser;
import java.util.concurrent.Semaphore;

/**
 * Runs scenarios by name, several at a time, because most of them only wait.
 *
 * <p>Two ways in: {@code Main NAMESRV SCENARIO [key=value ...]} runs one and exits 0 or 1;
 * {@code Main NAMESRV -} reads such lines from standard input until its end and answers each with one line
 * {@code @ok NAME MILLISECONDS NOTE} or {@code @FAIL NAME MILLISECONDS REASON} on standard output.
 */
public final class Main {
    interface Scenario {
        void run(Ctx ctx) throws Exception;
    }

    private static final int AT_ONCE = Integer.getInteger("interop.parallel", 10);
    private static final Semaphore SLOTS = new Semaphore(AT_ONCE, true);
    private static volatile boolean failed;

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        if (args.length < 2) {
            System.err.println("usage: Main NAMESRV SCENARIO [key=value ...]  |  Main NAMESRV -");
            System.exit(2);
        }
        Map<String, Scenario> all = new HashMap<>();
        Compat.scenarios(all);
        Phaser running = new Phaser(1);
        if (args[1].equals("-")) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (!line.isBlank()) {
                    launch(all, running, args[0], line.trim().split("\\s+"));
                }
            }
        } else {
            String[] words = new String[args.length - 1];
            System.arraycopy(args, 1, words, 0, words.length);
            launch(all, running, args[0], words);
        }
        running.arriveAndAwaitAdvance();
        System.exit(failed ? 1 : 0);
    }

    private static void launch(Map<String, Scenario> all, Phaser running, String namesrv, String[] words)
        throws InterruptedException {
        Map<String, String> args = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int eq = words[i].indexOf('=');
            args.put(words[i].substring(0, eq), words[i].substring(eq + 1));
        }
        args.putIfAbsent("prefix", "t" + Long.toString(System.currentTimeMillis(), 36));
        // "mix-consume:from-go" is the scenario mix-consume under a label of its own.
        String scenario = words[0].contains(":") ? words[0].substring(0, words[0].indexOf(':')) : words[0];
        Scenario code = all.get(scenario);
        if (code == null) {
            report("skipped", words[0], 0, "this client has no such scenario");
            return;
        }
        SLOTS.acquire();
        running.register();
        Thread thread = new Thread(() -> {
            try {
                runOne(code, new Ctx(namesrv, scenario, args), words[0]);
            } finally {
                SLOTS.release();
                running.arriveAndDeregister();
            }
        }, "scenario-" + words[0]);
        thread.setDaemon(true);
        thread.start();
    }

    private static void runOne(Scenario code, Ctx ctx, String label) {
        long begin = System.nanoTime();
        String trouble = null;
        try (ctx) {
            code.run(ctx);
        } catch (AssertionError e) {
            trouble = e.getMessage();
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            Throwable root = e;
            while (root.getCause() != null) {
                root = root.getCause();
            }
            System.err.println(label + ": " + trace);
            trouble = root.toString();
        }
        long ms = (System.nanoTime() - begin) / 1_000_000;
        if (trouble == null) {
            report("ok", label, ms, ctx.note());
        } else {
            failed = true;
            report("FAIL", label, ms, trouble);
        }
    }

    private static synchronized void report(String result, String name, long ms, String text) {
        String oneLine = text.replaceAll("\\s+", " ");
        System.out.println("@" + result + " " + name + " " + ms + " " + oneLine);
        System.out.flush();
    }
}
