import java.util.Arrays;
import java.util.Properties;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaConsumer;

/** The source of Kafka that connectors had until 4.0. */
public class OldKafka {
    public static DataStream<String> source(
            StreamExecutionEnvironment env, String servers, String topics) {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", servers);
        properties.setProperty("group.id", "statelake");
        FlinkKafkaConsumer<String> consumer =
                new FlinkKafkaConsumer<>(
                        Arrays.asList(topics.split(",")), new SimpleStringSchema(), properties);
        consumer.setStartFromEarliest();
        return env.addSource(consumer).uid("records");
    }
}
