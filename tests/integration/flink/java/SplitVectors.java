import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.runtime.checkpoint.RoundRobinOperatorStateRepartitioner;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.OperatorStateHandle.Mode;
import org.apache.flink.runtime.state.OperatorStateHandle.StateMetaInfo;
import org.apache.flink.runtime.state.OperatorStreamStateHandle;
import org.apache.flink.runtime.state.PhysicalStateHandleID;
import org.apache.flink.runtime.state.StreamStateHandle;
import org.apache.flink.util.CollectionUtil;

/**
 * Where operator state goes at another parallelism, by Flink's own repartitioner: each case a line of
 * JSON, the same ones at every run. `from` has, per old subtask, its states in the order of its
 * handle (`name=S4`: four elements, split; U is union, B broadcast); `got` has, per new subtask, the
 * elements of each state: `name=1:0-4` are the elements 0 to 4 (excluded) of old subtask 1. A new
 * subtask that gets what the one before it gets is `=`.
 *
 * <pre>
 * javac -cp FLINK -d OUT SplitVectors.java && java -cp FLINK:OUT SplitVectors | xz -9e > split.jsonl.xz
 * </pre>
 */
public class SplitVectors {
    private static final int CASES = 5200;
    private static final int SUBTASKS = 12;
    private static final int MANY_STATES = 30;
    /** More elements than any subtask has of a state: an offset tells its subtask and its element. */
    private static final long APART = 1000;
    private static final String LETTERS = "abcdefghijklmnopqrstuvwxyz_ABC0129é日";
    /** Names of one Java hash code: 2, 4 and 8 of each. */
    private static final String[] COLLIDING = {"Aa", "BB"};

    /** A file; hash maps give them back in the order of their subtasks. */
    record Held(int subtask) implements StreamStateHandle {
        @Override
        public int hashCode() {
            return subtask;
        }

        @Override
        public FSDataInputStream openInputStream() throws IOException {
            throw new FileNotFoundException();
        }

        @Override
        public Optional<byte[]> asBytesIfInMemory() {
            return Optional.empty();
        }

        @Override
        public PhysicalStateHandleID getStreamStateHandleID() {
            return new PhysicalStateHandleID("held-" + subtask);
        }

        @Override
        public void discardState() {}

        @Override
        public long getStateSize() {
            return 0;
        }
    }

    public static void main(String[] words) {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (int seed = 0; seed < CASES; seed++) {
            out.print(line(new Random(seed)) + "\n");
        }
        out.flush();
    }

    private static String line(Random random) {
        int before = parallelism(random);
        int after = random.nextInt(4) == 0 ? before : parallelism(random);
        Map<String, Mode> modes = new HashMap<>();
        List<String> names = names(random);
        int only = random.nextInt(12);
        for (String name : names) {
            modes.put(name, Mode.values()[only < 3 ? only : random.nextInt(3)]);
        }
        boolean complete = random.nextBoolean();
        boolean sharing = !complete && random.nextInt(3) == 0;
        List<List<OperatorStateHandle>> handles = new ArrayList<>();
        StringJoiner from = new StringJoiner(",", "[", "]");
        for (int subtask = 0; subtask < before; subtask++) {
            if (random.nextInt(20) == 0) {
                // all subtasks of a job have the same order of names; a handle may have any
                Collections.shuffle(names, random);
            }
            List<String> own = new ArrayList<>();
            for (String name : names) {
                // of a file that two share, each has its own states
                boolean left = sharing && (name.hashCode() & 1) == (subtask & 1);
                if (complete || !left && random.nextInt(6) > 0) {
                    own.add(name);
                }
            }
            if (!complete && random.nextInt(8) == 0) {
                own.clear();
            }
            handles.add(new ArrayList<>());
            from.add(quoted(subtask(random, subtask, own, modes, sharing, handles.get(subtask))));
        }
        List<List<OperatorStateHandle>> result =
                RoundRobinOperatorStateRepartitioner.INSTANCE.repartitionState(handles, before, after);
        StringJoiner got = new StringJoiner(",", "[", "]");
        String last = null;
        for (List<OperatorStateHandle> one : result) {
            String said = elements(one);
            got.add(quoted(said.equals(last) ? "=" : said));
            last = said;
        }
        return "{\"from\":" + from + ",\"to\":" + after + ",\"got\":" + got + "}";
    }

    /** More often small than large, so that the lines stay short. */
    private static int parallelism(Random random) {
        return 1 + Math.min(random.nextInt(SUBTASKS), random.nextInt(SUBTASKS));
    }

    /** Some names, rarely many, or some that share a bucket of every hash map. */
    private static List<String> names(Random random) {
        LinkedHashSet<String> names = new LinkedHashSet<>();
        int kind = random.nextInt(80);
        if (kind < 6) {
            int blocks = 1 + random.nextInt(3);
            for (int i = 0; i < 1 << blocks; i++) {
                StringBuilder name = new StringBuilder();
                for (int block = 0; block < blocks; block++) {
                    name.append(COLLIDING[i >> block & 1]);
                }
                names.add(name.toString());
            }
        }
        int more = kind == 79 ? MANY_STATES : kind > 72 ? 10 + random.nextInt(7) : 1 + random.nextInt(4);
        while (names.size() < more) {
            StringBuilder name = new StringBuilder();
            for (int length = 1 + random.nextInt(3); length > 0; length--) {
                name.append(LETTERS.charAt(random.nextInt(LETTERS.length())));
            }
            names.add(name.toString());
        }
        return new ArrayList<>(names);
    }

    /** Make the handle of one subtask, if it has any state, as the reader of `_metadata` does. */
    private static String subtask(
            Random random,
            int subtask,
            List<String> own,
            Map<String, Mode> modes,
            boolean sharing,
            List<OperatorStateHandle> to) {
        StringJoiner said = new StringJoiner(" ");
        Map<String, StateMetaInfo> offsets = CollectionUtil.newHashMapWithExpectedSize(own.size());
        for (String name : own) {
            Mode mode = modes.get(name);
            int count = mode == Mode.BROADCAST ? 1 : count(random);
            long[] at = new long[count];
            for (int i = 0; i < count; i++) {
                at[i] = subtask * APART + i;
            }
            offsets.put(name, new StateMetaInfo(at, mode));
            said.add(name + "=" + mode.name().charAt(0) + count);
        }
        if (!own.isEmpty()) {
            to.add(new OperatorStreamStateHandle(offsets, new Held(sharing ? subtask & ~1 : subtask)));
        }
        return said.toString();
    }

    private static int count(Random random) {
        int kind = random.nextInt(12);
        return kind < 2 ? 0 : kind < 11 ? 1 + random.nextInt(5) : random.nextInt(30);
    }

    /** What the handles of a new subtask have of each state; states without elements are left out. */
    private static String elements(List<OperatorStateHandle> handles) {
        Map<String, StringJoiner> states = new TreeMap<>();
        for (OperatorStateHandle handle : handles) {
            handle.getStateNameToPartitionOffsets().forEach((name, info) -> {
                long[] at = info.getOffsets();
                if (at.length > 0) {
                    long first = at[0] % APART;
                    for (int i = 0; i < at.length; i++) {
                        if (at[i] != at[0] + i) {
                            throw new IllegalStateException("elements are not neighbours");
                        }
                    }
                    states.computeIfAbsent(name, key -> new StringJoiner(","))
                            .add(at[0] / APART + ":" + first + "-" + (first + at.length));
                }
            });
        }
        StringJoiner said = new StringJoiner(" ");
        states.forEach((name, slices) -> said.add(name + "=" + slices));
        return said.toString();
    }

    private static String quoted(String text) {
        return "\"" + text + "\"";
    }
}
