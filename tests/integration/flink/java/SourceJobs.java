import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * A job of one source, which tells what it reads. Its command:
 *
 * <pre>
 * run  PARALLELISM PAUSE LINES SAVEPOINT FILE DIRECTORY SOURCE...
 * </pre>
 *
 * It runs, from a savepoint unless that is "-", until so many lines came, of which each takes PAUSE
 * milliseconds, and a second longer if PAUSE is 0; then it stops, with a savepoint in the directory
 * unless that is "-", and the lines are in the file. A source is
 *
 * <pre>
 * kafka      SERVERS TOPICS [UID]
 * old-kafka  SERVERS TOPICS    of Flink 1
 * files      DIRECTORY
 * numbers    FIRST LAST [SERVERS TOPIC | files DIRECTORY]    which go there, exactly once
 * </pre>
 */
public class SourceJobs {
    static final ConcurrentLinkedQueue<String> LINES = new ConcurrentLinkedQueue<>();
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        Answers.to(SourceJobs::run);
    }

    private static String run(String[] words) throws Exception {
        int parallelism = Integer.parseInt(words[1]);
        long pause = Long.parseLong(words[2]);
        int wanted = Integer.parseInt(words[3]);
        Configuration conf = new Configuration();
        conf.setString("restart-strategy.type", "none");
        conf.setString("execution.checkpointing.data-inline-threshold", "1mb");
        if (!words[4].equals("-")) {
            conf.setString("execution.state-recovery.path", words[4]);
        }
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        env.setMaxParallelism(128);
        LINES.clear();
        DataStream<String> told = source(env, words).map(new Telling(pause)).uid("telling");
        if (words.length > 11 && words[10].equals("files")) {
            told.sinkTo(FileSink.forRowFormat(
                    new org.apache.flink.core.fs.Path(words[11]),
                    new SimpleStringEncoder<String>()).build()).uid("files");
        } else if (words.length > 11) {
            told.sinkTo(KafkaSink.<String>builder()
                    .setBootstrapServers(words[10])
                    .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                            .setTopic(words[11])
                            .setValueSerializationSchema(new SimpleStringSchema())
                            .build())
                    .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                    .setTransactionalIdPrefix("statelake")
                    .setProperty("transaction.timeout.ms", "600000")
                    .build()).uid("kafka");
        } else {
            told.sinkTo(new DiscardingSink<>()).uid("nowhere");
        }
        MiniCluster cluster = Cluster.of(parallelism);
        JobID job = Cluster.submit(cluster, env);
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (LINES.size() < wanted) {
            if (System.currentTimeMillis() > until) {
                throw new IllegalStateException("only " + LINES.size() + " lines came");
            }
            Thread.sleep(20);
        }
        if (pause == 0) {
            Thread.sleep(1000);
        }
        String savepoint = "-";
        if (words[6].equals("-")) {
            cluster.cancelJob(job).get();
        } else if (words[7].equals("old-kafka")) { // which forgets its offsets when it is stopped
            savepoint = cluster.triggerSavepoint(
                    job, words[6], true, SavepointFormatType.CANONICAL).get();
        } else {
            savepoint = cluster.stopWithSavepoint(
                    job, words[6], false, SavepointFormatType.CANONICAL).get();
        }
        cluster.requestJobResult(job).get();
        Files.write(Path.of(words[5]), new ArrayList<>(LINES), StandardCharsets.UTF_8);
        return savepoint;
    }

    @SuppressWarnings("unchecked")
    private static DataStream<String> source(StreamExecutionEnvironment env, String[] words)
            throws Exception {
        WatermarkStrategy<String> none = WatermarkStrategy.noWatermarks();
        switch (words[7]) {
            case "kafka":
                KafkaSource<String> kafka = KafkaSource.<String>builder()
                        .setBootstrapServers(words[8])
                        .setTopics(words[9].split(","))
                        .setGroupId("statelake")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
                return env.fromSource(kafka, none, "records")
                        .uid(words.length > 10 ? words[10] : "records");
            case "old-kafka": // of Flink 1, so its class is compiled there alone
                return (DataStream<String>) Class.forName("OldKafka")
                        .getMethod("source", StreamExecutionEnvironment.class, String.class,
                                String.class)
                        .invoke(null, env, words[8], words[9]);
            case "files":
                FileSource<String> files = FileSource
                        .forRecordStreamFormat(
                                new TextLineInputFormat(),
                                new org.apache.flink.core.fs.Path(words[8]))
                        .monitorContinuously(Duration.ofMinutes(10))
                        .build();
                return env.fromSource(files, none, "lines").uid("lines");
            case "numbers":
                NumberSequenceSource numbers = new NumberSequenceSource(
                        Long.parseLong(words[8]), Long.parseLong(words[9]));
                return env.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
                        .uid("numbers").map(number -> Long.toString(number)).returns(Types.STRING);
            default:
                throw new IllegalArgumentException("unknown source " + words[7]);
        }
    }

    private static class Telling implements MapFunction<String, String> {
        private final long pause;

        Telling(long pause) {
            this.pause = pause;
        }

        @Override
        public String map(String line) throws Exception {
            LINES.add(line);
            Thread.sleep(pause);
            return line;
        }
    }
}
