import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.PlanReference;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** Runs a compiled plan of Flink SQL: NAME PLAN_FILE. */
public class PlanRunner {
    public static void main(String[] arguments) throws Exception {
        StreamTableEnvironment tables =
                StreamTableEnvironment.create(StreamExecutionEnvironment.getExecutionEnvironment());
        tables.getConfig().set("pipeline.name", arguments[0]);
        tables.loadPlan(PlanReference.fromFile(arguments[1])).execute();
    }
}
