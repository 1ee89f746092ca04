import java.time.Instant;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.kinesis.source.enumerator.KinesisShardSplitWithAssignmentStatus;
import org.apache.flink.connector.kinesis.source.enumerator.KinesisStreamsSourceEnumeratorState;
import org.apache.flink.connector.kinesis.source.enumerator.KinesisStreamsSourceEnumeratorStateSerializer;
import org.apache.flink.connector.kinesis.source.enumerator.SplitAssignmentStatus;
import org.apache.flink.connector.kinesis.source.split.KinesisShardSplit;
import org.apache.flink.connector.kinesis.source.split.KinesisShardSplitSerializer;
import org.apache.flink.connector.kinesis.source.split.StartingPosition;
import org.apache.flink.runtime.state.StateInitializationContext;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.connectors.kinesis.model.SequenceNumber;
import org.apache.flink.streaming.connectors.kinesis.model.StreamShardMetadata;
import org.apache.flink.streaming.connectors.kinesis.util.KinesisStateUtil;

/**
 * Savepoints with the state of Kinesis's sources, by their serializers and types:
 *
 * <pre>
 * source    DIRECTORY   of the KinesisStreamsSource: three shards in readers, one that waits
 * consumer  DIRECTORY   of the FlinkKinesisConsumer: two shards
 * </pre>
 */
public class KinesisStates {
    private static final String STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/orders";
    private static final String NUMBER = "49590338271490256608559692538361571095921575989136588898";

    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> words[0].equals("source")
                ? source(words[1]) : HeldSink.savepoint(new Consumer(), words[1]));
    }

    private static String source(String directory) throws Exception {
        KinesisShardSplitSerializer serializer = new KinesisShardSplitSerializer();
        List<KinesisShardSplit> held = Arrays.asList(
                shard(0, StartingPosition.continueFromSequenceNumber(NUMBER)),
                shard(1, StartingPosition.fromTimestamp(Instant.ofEpochMilli(1767225600000L))),
                new KinesisShardSplit(STREAM, "shardId-000000000002", StartingPosition.fromStart(),
                        Collections.singleton("shardId-000000000000"), "0", "100", true));
        return HeldSource.savepoint(
                serializer, new KinesisStreamsSourceEnumeratorStateSerializer(serializer), held,
                new KinesisStreamsSourceEnumeratorState(
                        Arrays.asList(
                                known(held.get(0), SplitAssignmentStatus.ASSIGNED),
                                known(shard(3, StartingPosition.fromStart()),
                                        SplitAssignmentStatus.UNASSIGNED)),
                        "shardId-000000000003"),
                directory);
    }

    private static KinesisShardSplit shard(int number, StartingPosition position) {
        return new KinesisShardSplit(STREAM, "shardId-00000000000" + number, position,
                Collections.emptySet(), "0", "340282366920938463463374607431768211455");
    }

    private static KinesisShardSplitWithAssignmentStatus known(
            KinesisShardSplit split, SplitAssignmentStatus status) {
        return new KinesisShardSplitWithAssignmentStatus(split, status);
    }

    /** What FlinkKinesisConsumer registers. */
    private static class Consumer implements HeldSink.State {
        private ListState<Tuple2<StreamShardMetadata, SequenceNumber>> state;

        @Override
        public void initialize(StateInitializationContext context) throws Exception {
            state = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>(
                    "Kinesis-Stream-Shard-State",
                    KinesisStateUtil.createShardsStateSerializer(new ExecutionConfig())));
        }

        @Override
        public void snapshot(StateSnapshotContext context) throws Exception {
            state.update(Arrays.asList(
                    Tuple2.of(metadata(0), new SequenceNumber(NUMBER)),
                    Tuple2.of(metadata(1), new SequenceNumber("EARLIEST_SEQUENCE_NUM"))));
        }

        private static StreamShardMetadata metadata(int number) {
            StreamShardMetadata made = new StreamShardMetadata();
            made.setStreamName("orders");
            made.setShardId("shardId-00000000000" + number);
            made.setStartingHashKey("0");
            made.setEndingHashKey("340282366920938463463374607431768211455");
            made.setStartingSequenceNumber("4959");
            return made;
        }
    }
}
