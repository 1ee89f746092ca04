import java.io.BufferedReader;
import java.io.File;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.samza.checkpoint.CheckpointId;
import org.apache.samza.checkpoint.CheckpointV1;
import org.apache.samza.checkpoint.CheckpointV2;
import org.apache.samza.checkpoint.kafka.KafkaChangelogSSPOffset;
import org.apache.samza.checkpoint.kafka.KafkaCheckpointLogKey;
import org.apache.samza.checkpoint.kafka.KafkaCheckpointLogKeySerde;
import org.apache.samza.checkpoint.kafka.KafkaStateCheckpointMarker;
import org.apache.samza.serializers.CheckpointV1Serde;
import org.apache.samza.serializers.CheckpointV2Serde;
import org.apache.samza.storage.blobstore.BlobStoreManager;
import org.apache.samza.storage.blobstore.Metadata;
import org.apache.samza.storage.blobstore.diff.DirDiff;
import org.apache.samza.storage.blobstore.exceptions.DeletedException;
import org.apache.samza.storage.blobstore.index.DirIndex;
import org.apache.samza.storage.blobstore.index.SnapshotIndex;
import org.apache.samza.storage.blobstore.index.SnapshotMetadata;
import org.apache.samza.storage.blobstore.index.serde.SnapshotIndexSerde;
import org.apache.samza.storage.blobstore.util.BlobStoreUtil;
import org.apache.samza.storage.blobstore.util.DirDiffUtil;
import org.apache.samza.system.SystemStreamPartition;

/** Asks real Samza: a command a line, an answer a line; bytes as Base64. */
public class SamzaOracle {

  private static final ExecutorService POOL = Executors.newFixedThreadPool(2);

  /** What is backed up is that of the task that the tests restore. */
  private static final String TASK = "Partition 3";

  public static void main(String[] arguments) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String answer;
      try {
        answer = "ok\t" + answer(line.split("\t", -1));
      } catch (Throwable problem) {
        answer = "error\t" + String.valueOf(problem).replaceAll("\\s+", " ");
      }
      System.out.println("answer\t" + answer);
    }
    POOL.shutdown();
  }

  private static String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "v1":
        CheckpointV1 v1 = new CheckpointV1Serde().fromBytes(bytes(words[1]));
        return told(said(v1.getOffsets())) + "\t" + text(new CheckpointV1Serde().toBytes(v1));
      case "v2":
        CheckpointV2 v2 = new CheckpointV2Serde().fromBytes(bytes(words[1]));
        return told(v2.getCheckpointId() + " " + said(v2.getOffsets()) + " "
            + sorted(v2.getStateCheckpointMarkers())) + "\t"
            + text(new CheckpointV2Serde().toBytes(v2));
      case "key":
        KafkaCheckpointLogKey key = new KafkaCheckpointLogKeySerde().fromBytes(bytes(words[1]));
        return told(key.getTaskName() + " " + key.getType() + " "
            + key.getGrouperFactoryClassName()) + "\t" + text(new KafkaCheckpointLogKeySerde().toBytes(key));
      case "marker":
        KafkaStateCheckpointMarker marker =
            KafkaStateCheckpointMarker.deserialize(new String(bytes(words[1]), "UTF-8"));
        return told(marker.getChangelogSSP() + " " + marker.getChangelogOffset()) + "\t"
            + text(KafkaStateCheckpointMarker.serialize(marker).getBytes("UTF-8"));
      case "offset":
        KafkaChangelogSSPOffset offset =
            KafkaChangelogSSPOffset.fromString(new String(bytes(words[1]), "UTF-8"));
        return told(offset.getCheckpointId() + " " + offset.getChangelogOffset()) + "\t"
            + text(offset.toString().getBytes("UTF-8"));
      case "index":
        SnapshotIndex index = new SnapshotIndexSerde().fromBytes(bytes(words[1]));
        return told(index.getSnapshotMetadata().getCheckpointId() + " "
            + DirIndex.getStats(index.getDirIndex())) + "\t"
            + text(new SnapshotIndexSerde().toBytes(index));
      case "restore":
        return restore(new File(words[1]), words[2], new File(words[3]));
      case "backup":
        return backup(new File(words[1]), words[2], new File(words[3]), words[4]);
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  /** As BlobStoreRestoreManager does it, with its check at the end. */
  private static String restore(File root, String marker, File target) throws Exception {
    BlobStoreUtil util = new BlobStoreUtil(new Blobs(root), POOL, null, null);
    Metadata request = request(Metadata.SNAPSHOT_INDEX_PAYLOAD_PATH);
    DirIndex directory = util.getSnapshotIndex(marker, request).get().getDirIndex();
    util.restoreDir(target, directory, request(target.getPath())).get();
    boolean same = new DirDiffUtil().areSameDir(Collections.emptySet(), true)
        .test(target, directory);
    return String.valueOf(same);
  }

  /** As BlobStoreBackupManager does it; the marker of the snapshot before may be empty. */
  private static String backup(File root, String before, File source, String id)
      throws Exception {
    BlobStoreUtil util = new BlobStoreUtil(new Blobs(root), POOL, null, null);
    DirIndex old = new DirIndex(source.getName(), Collections.emptyList(),
        Collections.emptyList(), Collections.emptyList(), Collections.emptyList());
    if (!before.isEmpty()) {
      old = util.getSnapshotIndex(before, request(Metadata.SNAPSHOT_INDEX_PAYLOAD_PATH)).get()
          .getDirIndex();
    }
    SnapshotMetadata metadata =
        new SnapshotMetadata(CheckpointId.deserialize(id), "job", "1", TASK, "store");
    DirDiff diff = DirDiffUtil.getDirDiff(source, old, DirDiffUtil.areSameFile(false));
    DirIndex directory = util.putDir(diff, metadata).toCompletableFuture().get();
    Optional<String> previous = before.isEmpty() ? Optional.empty() : Optional.of(before);
    SnapshotIndex index = new SnapshotIndex(1L, metadata, directory, previous);
    return util.putSnapshotIndex(index).get() + "\t" + DirDiff.getStats(diff);
  }

  private static Metadata request(String path) {
    return new Metadata(path, Optional.of(0L), "job", "1", TASK, "store");
  }

  private static String said(Map<SystemStreamPartition, String> offsets) {
    Map<String, String> found = new TreeMap<>();
    offsets.forEach((partition, offset) -> found.put(partition.toString(), offset));
    return found.toString();
  }

  private static String sorted(Map<String, Map<String, String>> markers) {
    Map<String, Map<String, String>> found = new TreeMap<>();
    markers.forEach((factory, stores) -> found.put(factory, new TreeMap<>(stores)));
    return found.toString();
  }

  private static String told(String facts) {
    return text(facts.getBytes(StandardCharsets.UTF_8));
  }

  private static byte[] bytes(String text) {
    return Base64.getDecoder().decode(text);
  }

  private static String text(byte[] bytes) {
    return Base64.getEncoder().encodeToString(bytes);
  }

  /** Blobs where our blob store has them: a file each, below `blobs`. */
  private static class Blobs implements BlobStoreManager {
    private final Path root;
    private int count;

    Blobs(File directory) {
      root = directory.toPath().resolve("blobs");
    }

    @Override
    public void init() { }

    @Override
    public synchronized CompletionStage<String> put(InputStream in, Metadata metadata) {
      String id = "samza/" + System.nanoTime() + "-" + count++;
      try {
        Files.createDirectories(root.resolve("samza"));
        Files.copy(in, root.resolve(id));
      } catch (Exception problem) {
        return CompletableFuture.failedFuture(problem);
      }
      return CompletableFuture.completedFuture(id);
    }

    @Override
    public CompletionStage<Void> get(String id, OutputStream out, Metadata metadata) {
      try {
        Files.copy(root.resolve(id), out);
      } catch (Exception problem) {
        return CompletableFuture.failedFuture(new DeletedException(id, problem));
      }
      return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletionStage<Void> delete(String id, Metadata metadata) {
      return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletionStage<Void> removeTTL(String id, Metadata metadata) {
      return CompletableFuture.completedFuture(null);
    }

    @Override
    public void close() { }
  }
}
