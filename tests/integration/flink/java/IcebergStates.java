import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.core.io.SimpleVersionedSerialization;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.Files;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.WriteResult;

/**
 * Savepoints with the state of Iceberg's committers, by its own classes:
 *
 * <pre>
 * committer  DIRECTORY   of its old sink: three checkpoints, the second without files
 * sink       DIRECTORY   of its new sink: one committable
 * </pre>
 *
 * Their manifests are in /tmp/table/metadata.
 */
public class IcebergStates {
    private static final String FLINK = "org.apache.iceberg.flink.sink.";
    private static final String JOB = "0123456789abcdef0123456789abcdef";

    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> run(words[0], words[1]));
    }

    @SuppressWarnings("unchecked")
    private static String run(String what, String directory) throws Exception {
        if (what.equals("sink")) {
            Constructor<?> made = Class.forName(FLINK + "IcebergCommittable")
                    .getDeclaredConstructor(byte[].class, String.class, String.class, long.class);
            made.setAccessible(true);
            Object committable = made.newInstance(manifests("a", true), JOB, "writer-1", 1L);
            Constructor<?> serializer = Class.forName(FLINK + "IcebergCommittableSerializer")
                    .getDeclaredConstructor();
            serializer.setAccessible(true);
            return HeldSink.savepoint(
                    (SimpleVersionedSerializer<Object>) serializer.newInstance(), Arrays.asList(committable), directory);
        }
        SortedMap<Long, byte[]> pending = new TreeMap<>();
        pending.put(7L, manifests("b", false));
        pending.put(8L, new byte[0]);
        pending.put(9L, manifests("c", true));
        return HeldSink.savepoint(new Pending(pending), directory);
    }

    /** What IcebergFilesCommitter registers, and what it puts there. */
    private static class Pending implements HeldSink.State {
        private final SortedMap<Long, byte[]> pending;
        private ListState<SortedMap<Long, byte[]>> checkpoints;
        private ListState<String> jobs;

        Pending(SortedMap<Long, byte[]> pending) {
            this.pending = pending;
        }

        @Override
        public void initialize(StateInitializationContext context) throws Exception {
            checkpoints = context.getOperatorStateStore().getListState(named("STATE_DESCRIPTOR"));
            jobs = context.getOperatorStateStore().getListState(named("JOB_ID_DESCRIPTOR"));
        }

        @Override
        public void snapshot(StateSnapshotContext context) throws Exception {
            checkpoints.update(Arrays.asList(pending));
            jobs.update(Arrays.asList(JOB));
        }

        @SuppressWarnings("unchecked")
        private static <T> ListStateDescriptor<T> named(String name) throws Exception {
            Field field = Class.forName(FLINK + "IcebergFilesCommitter").getDeclaredField(name);
            field.setAccessible(true);
            return (ListStateDescriptor<T>) field.get(null);
        }
    }

    /** The manifests of a data file, and of a delete file if there is to be one. */
    @SuppressWarnings("unchecked")
    private static byte[] manifests(String name, boolean deletes) throws Exception {
        PartitionSpec spec = PartitionSpec.unpartitioned();
        WriteResult.Builder result = WriteResult.builder().addDataFiles(DataFiles.builder(spec)
                .withPath("/tmp/table/data/" + name + ".parquet").withFileSizeInBytes(1000)
                .withRecordCount(10).build());
        if (deletes) {
            result.addDeleteFiles(FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(1)
                    .withPath("/tmp/table/data/" + name + "-deletes.parquet")
                    .withFileSizeInBytes(100).withRecordCount(2).build());
        }
        int[] number = {0};
        Supplier<OutputFile> output = () -> Files.localOutput(
                new File("/tmp/table/metadata/" + name + "-" + number[0]++ + ".avro"));
        Method write = Class.forName(FLINK + "FlinkManifestUtil").getDeclaredMethod("writeCompletedFiles",
                WriteResult.class, Supplier.class, PartitionSpec.class);
        write.setAccessible(true);
        new File("/tmp/table/metadata").mkdirs();
        for (File old : new File("/tmp/table/metadata").listFiles()) {
            if (old.getName().startsWith(name + "-")) {
                old.delete();
            }
        }
        Object both = write.invoke(null, result.build(), output, spec);
        Field serializer = Class.forName(FLINK + "DeltaManifestsSerializer").getDeclaredField("INSTANCE");
        serializer.setAccessible(true);
        return SimpleVersionedSerialization.writeVersionAndSerialize(
                (SimpleVersionedSerializer<Object>) serializer.get(null), both);
    }
}
