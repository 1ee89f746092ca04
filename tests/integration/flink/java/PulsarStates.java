import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import org.apache.flink.connector.pulsar.sink.committer.PulsarCommittable;
import org.apache.flink.connector.pulsar.sink.committer.PulsarCommittableSerializer;
import org.apache.flink.connector.pulsar.source.enumerator.PulsarSourceEnumState;
import org.apache.flink.connector.pulsar.source.enumerator.PulsarSourceEnumStateSerializer;
import org.apache.flink.connector.pulsar.source.enumerator.cursor.StopCursor;
import org.apache.flink.connector.pulsar.source.enumerator.topic.TopicPartition;
import org.apache.flink.connector.pulsar.source.split.PulsarPartitionSplit;
import org.apache.flink.connector.pulsar.source.split.PulsarPartitionSplitSerializer;
import org.apache.pulsar.client.api.transaction.TxnID;
import org.apache.pulsar.client.impl.MessageIdImpl;

/** The state of Pulsar's source and sink, by their serializers: source or sink DIRECTORY. */
public class PulsarStates {
    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> run(words[0], words[1]));
    }

    private static String run(String what, String directory) throws Exception {
        if (what.equals("sink")) {
            return HeldSink.savepoint(new PulsarCommittableSerializer(), Arrays.asList(
                    new PulsarCommittable(new TxnID(3, 17), "persistent://public/default/out")),
                    directory);
        }
        List<TopicPartition> partitions = Arrays.asList(
                new TopicPartition("persistent://public/default/orders", 0),
                new TopicPartition("persistent://public/default/orders", 1),
                new TopicPartition("persistent://public/default/lines"));
        return HeldSource.savepoint(
                PulsarPartitionSplitSerializer.INSTANCE, PulsarSourceEnumStateSerializer.INSTANCE,
                Arrays.asList(
                        new PulsarPartitionSplit(partitions.get(0), StopCursor.never(),
                                new MessageIdImpl(12, 345, 0), null),
                        new PulsarPartitionSplit(partitions.get(1),
                                StopCursor.atPublishTime(1767225600000L), null, null),
                        new PulsarPartitionSplit(partitions.get(2),
                                StopCursor.atMessageId(new MessageIdImpl(99, 7, -1)),
                                new MessageIdImpl(13, 1, -1), new TxnID(3, 16))),
                new PulsarSourceEnumState(new LinkedHashSet<>(partitions)), directory);
    }
}
