import io.delta.flink.sink.internal.committables.DeltaCommittable;
import io.delta.flink.sink.internal.committables.DeltaCommittableSerializer;
import io.delta.flink.sink.internal.committables.DeltaGlobalCommittable;
import io.delta.flink.sink.internal.committables.DeltaGlobalCommittableSerializer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.fs.RecoverableFsDataOutputStream;
import org.apache.flink.core.fs.RecoverableWriter;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.functions.sink.filesystem.DeltaPendingFile;
import org.apache.flink.streaming.api.functions.sink.filesystem.InProgressFileWriter.PendingFileRecoverable;
import org.apache.flink.streaming.api.functions.sink.filesystem.OutputStreamBasedPartFileWriter.OutputStreamBasedPendingFileRecoverable;
import org.apache.flink.streaming.api.functions.sink.filesystem.RowWiseBucketWriter;

/**
 * Savepoints with what Delta's sink has to commit, by its serializers: files DIRECTORY, of its
 * committer, or table DIRECTORY, of that of the whole table.
 */
public class DeltaStates {
    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> run(words[0], words[1]));
    }

    private static String run(String what, String directory) throws Exception {
        RecoverableWriter writer = FileSystem.getLocalFileSystem().createRecoverableWriter();
        SimpleVersionedSerializer<PendingFileRecoverable> pending =
                new RowWiseBucketWriter<String, String>(writer, new SimpleStringEncoder<>())
                        .getProperties().getPendingFileRecoverableSerializer();
        List<DeltaCommittable> files = Arrays.asList(
                file(writer, "part-0.parquet", "2026", 10), file(writer, "part-1.parquet", null, 3));
        if (what.equals("files")) {
            return HeldSink.savepoint(new DeltaCommittableSerializer(pending), files, directory);
        }
        return HeldSink.savepoint(new DeltaGlobalCommittableSerializer(pending),
                Arrays.asList(new DeltaGlobalCommittable(files)), directory);
    }

    private static DeltaCommittable file(
            RecoverableWriter writer, String name, String year, long rows) throws Exception {
        RecoverableFsDataOutputStream out = writer.open(new Path("/tmp/table/" + name));
        out.write(1);
        LinkedHashMap<String, String> partition = new LinkedHashMap<>();
        if (year != null) {
            partition.put("year", year);
        }
        PendingFileRecoverable pending = new OutputStreamBasedPendingFileRecoverable(
                out.closeForCommit().getRecoverable());
        return new DeltaCommittable(
                new DeltaPendingFile(partition, name, pending, rows, 1000, 1767225600000L),
                "application", 4);
    }
}
